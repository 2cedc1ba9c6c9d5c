for index = 1, count do
  if redis.call('PTTL', KEYS[index]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[index], ARGV[2])
  end
end
return 1
