-- token
local key = KEYS[1]
local own, reply = mine(key, 'r')
if not own then return reply end
if own == true then
  local rest = math.max(redis.call('PTTL', key), 1)
  -- Redis keeps the writes of a script that fails: the time is read before the lock is removed.
  local till = now() + rest
  redis.call('DEL', key)
  local failed = set(key, 'r:' .. ARGV[1], till)
  if failed then
    redis.call('SET', key, ARGV[1], 'PX', text(rest))
    return failed
  end
  redis.pcall('PUBLISH', key, 'r')
end
return 1
