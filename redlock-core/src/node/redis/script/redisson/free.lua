if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('PTTL', KEYS[1]) end
-- Redis keeps the writes of a script that fails, but every lock has a deadline. So this script writes
-- nothing if PEXPIRE is not permitted. Redis 6.2 has no function for this check.
if redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIRE', KEYS[1], ARGV[2]) then
  return redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
end
