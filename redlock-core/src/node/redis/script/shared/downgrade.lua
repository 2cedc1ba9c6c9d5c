-- The second argument is the token of the exclusive lock, the third `r` for a reader or `p` for the holder of a permit.
-- A late downgrade leaves the exclusive lock of a later upgrade.
if is_exclusive and upgraded <= upgrades(ARGV[2]) then
  local rest = math.max(redis.call('PTTL', KEYS[1]), 1)
  redis.call('DEL', KEYS[1])
  local changed = set(ARGV[3] .. ':' .. ARGV[1], now + rest)
  -- The user is not permitted to write a hash.
  if type(changed) == 'table' then
    redis.call('SET', KEYS[1], value, 'PX', string.format('%.0f', rest))
    return changed
  end
  -- The marks of writers are gone if the lock was upgraded before, so the writers are notified too.
  redis.pcall('PUBLISH', KEYS[1], '0')
  return 1
end
return till and 1 or 0
