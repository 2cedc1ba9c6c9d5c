-- owner, time for which the lock stays if it does, channel
local rest = #ARGV > 2 and ARGV[2]
if not rest then
  redis.call('DEL', KEYS[1])
elseif redis.call('PTTL', KEYS[1]) > tonumber(rest) then
  redis.call('PEXPIRE', KEYS[1], rest)
end
-- A denied PUBLISH does not fail the release.
local subscribers = redis.pcall('PUBLISH', ARGV[#ARGV], '0')
return 1 + (type(subscribers) == 'number' and subscribers or 0)
