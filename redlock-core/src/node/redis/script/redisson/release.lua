-- owner, time for which the lock stays or '', channel
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
elseif redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
-- A denied PUBLISH does not fail the release.
local subscribers = redis.pcall('PUBLISH', ARGV[3], '0')
return 1 + (type(subscribers) == 'number' and subscribers or 0)
