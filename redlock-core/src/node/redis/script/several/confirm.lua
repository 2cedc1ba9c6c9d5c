for index = count + 1, #KEYS do
  if tonumber(redis.call('GET', KEYS[index]) or 0) < tonumber(ARGV[2]) then
    redis.call('SET', KEYS[index], ARGV[2])
  end
end
return 1
