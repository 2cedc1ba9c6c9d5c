redis.call('HSET', KEYS[1], ARGV[1], '1')
local deadline = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
if type(deadline) == 'table' then
  redis.call('DEL', KEYS[1])
  return deadline
end
