local most, notified = 0, {}
for index, key in ipairs(owned) do
  -- A denied PUBLISH does not fail the release.
  notified[index] = redis.pcall('PUBLISH', key, '0')
  if type(notified[index]) == 'number' then most = math.max(most, notified[index]) end
end
