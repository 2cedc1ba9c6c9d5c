-- Most releases: of an exclusive lock of one key, for whose release nobody waits. They need none of the functions below.
local notified
if #ARGV == 1 and #KEYS == 1 and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  -- A denied PUBLISH does not fail the release.
  notified = redis.pcall('PUBLISH', KEYS[1], '0')
  if type(notified) ~= 'number' or notified == 0 then return 1 end
end

