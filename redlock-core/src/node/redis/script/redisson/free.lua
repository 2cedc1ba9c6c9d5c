if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('PTTL', KEYS[1]) end
-- What a script has written stays when it fails, and no lock may stand without a deadline. So nothing is
-- written where PEXPIRE is not permitted. Redis 6.2 cannot be asked for that.
if redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIRE', KEYS[1], ARGV[2]) then
  return redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
end
