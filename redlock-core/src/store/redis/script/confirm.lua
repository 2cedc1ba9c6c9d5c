-- token, number, number of locks
local count = tonumber(ARGV[3])
for index = 1, count do
  local own, reply = mine(KEYS[index], 'x')
  if not own then return reply end
end
for index = count + 1, #KEYS do
  if tonumber(redis.call('GET', KEYS[index]) or 0) < tonumber(ARGV[2]) then
    redis.call('SET', KEYS[index], ARGV[2])
  end
end
return 1
