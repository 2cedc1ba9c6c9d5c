-- Returns 2 if a writer waits.
if is_exclusive then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return 1
end
if not till then return 0 end
local changed = set(own, math.max(till, now + ARGV[2]))
if type(changed) == 'table' then return changed end
local _, mark = living('w')
return mark > 0 and 2 or 1
