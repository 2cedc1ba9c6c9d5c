for _, key in ipairs(owned) do
  if redis.call('PTTL', key) > tonumber(ARGV[2]) then
    redis.call('PEXPIRE', key, ARGV[2])
  end
end
