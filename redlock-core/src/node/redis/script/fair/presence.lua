local until_millis = text(math.floor((now + presence) / 1000))
-- Redis keeps the writes of a script that fails, but every queue has a deadline. So this script adds nothing if PEXPIREAT
-- is not permitted. Redis 6.2 has no function for this check.
if redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIREAT', KEYS[1], until_millis) then
  return redis.pcall('PEXPIREAT', KEYS[1], until_millis)
end
redis.call('ZADD', KEYS[1], text(-now - presence), ARGV[1])
-- No presence ends later than this one.
local deadline = redis.pcall('PEXPIREAT', KEYS[1], until_millis)
if type(deadline) == 'table' then
  redis.call('DEL', KEYS[1])
  return deadline
end
