if is_exclusive then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return 1
end
if not till then return 0 end
local changed = set(own, math.max(till, now + ARGV[2]))
if type(changed) == 'table' then return changed end
return 1
