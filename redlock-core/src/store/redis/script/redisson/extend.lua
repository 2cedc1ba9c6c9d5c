-- owner, lease, and 1 if the server tracks the key for the client
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  -- A change ends the tracking of a key, and a read begins it again.
  if ARGV[3] then redis.call('PTTL', KEYS[1]) end
end
return 1
