if is_exclusive then
  local rest = math.max(redis.call('PTTL', KEYS[1]), 1)
  redis.call('DEL', KEYS[1])
  local changed = set('r:' .. ARGV[1], now + rest)
  -- The user is not permitted to write a hash.
  if type(changed) == 'table' then
    redis.call('SET', KEYS[1], value, 'PX', string.format('%.0f', rest))
    return changed
  end
  redis.pcall('PUBLISH', KEYS[1], '0')
  return 1
end
return till and 1 or 0
