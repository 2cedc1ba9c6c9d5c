local most = 0
for _, key in ipairs(owned) do
  -- A denied PUBLISH does not fail the release.
  local subscribers = redis.pcall('PUBLISH', key, '0')
  if type(subscribers) == 'number' and subscribers > most then most = subscribers end
end
if result ~= 1 then return result end
return 1 + most
