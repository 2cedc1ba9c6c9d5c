-- Acquires the exclusive lock even if the marks of waiting writers are left at the key. If shared holders or their
-- turn refuse it, sets the mark, which is the third argument, for the time of the fourth argument, unless the mark is
-- empty. The reply is then the time until the last of them ends, in a list.
if value then return redis.call('PTTL', KEYS[1]) end
local _, readers = living('r')
local _, permits = living('p')
local _, turn = living('t')
local last = math.max(readers, permits, turn)
if last > 0 then
  if ARGV[3] ~= '' then
    local changed = set('w:' .. ARGV[3], now + ARGV[4])
    if type(changed) == 'table' then return changed end
  end
  return {last - now}
end
