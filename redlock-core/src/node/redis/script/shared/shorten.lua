if is_exclusive then
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
else
  if not till then return 0 end
  if now + ARGV[2] < till then
    local changed = set(own, now + ARGV[2])
    if type(changed) == 'table' then return changed end
  end
end
local subscribers = redis.pcall('PUBLISH', KEYS[1], '0')
