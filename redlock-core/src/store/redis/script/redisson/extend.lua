-- owner, lease
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  -- A change ends the tracking of a key, and a read begins it again.
  redis.call('PTTL', KEYS[1])
end
return 1
