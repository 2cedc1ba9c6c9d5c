local subscribers = 0
if is_exclusive then
  redis.call('DEL', KEYS[1])
  subscribers = redis.pcall('PUBLISH', KEYS[1], '0')
  give_turn(subscribers)
else
  if not till then return 0 end
  ends[own] = nil
  redis.call('HDEL', KEYS[1], own)
  local changed = settle()
  if type(changed) == 'table' then return changed end
  local _, mark = living('w')
  local readers = living('r')
  local permits = living('p')
  if permits > 0 then
    subscribers = redis.pcall('PUBLISH', KEYS[1], 'r')
  elseif readers == 0 then
    subscribers = redis.pcall('PUBLISH', KEYS[1], mark > 0 and 'w' or '0')
  end
end
