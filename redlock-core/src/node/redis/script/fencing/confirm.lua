if count < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2]) end
return 1
