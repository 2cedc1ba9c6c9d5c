-- The second argument is the token of the exclusive lock.
if value == ARGV[2] then
  local rest = redis.call('PTTL', KEYS[1])
  redis.call('DEL', KEYS[1])
  local changed = set('r:' .. ARGV[1], now + math.max(rest, 0))
  if type(changed) == 'table' then return changed end
elseif not till then
  return 0
end
-- The marks of writers are gone if the lock was upgraded before, so the writers are notified too.
redis.pcall('PUBLISH', KEYS[1], '0')
return 1
