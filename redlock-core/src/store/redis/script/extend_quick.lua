-- Most extensions: of a lock of one key that its owner has alone. They need none of the functions below.
if ARGV[2] == 'x' and #KEYS == 1 and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    -- The read registers the key again, as in the script below.
    if ARGV[4] then redis.call('PTTL', KEYS[1]) end
  end
  return 1
end

