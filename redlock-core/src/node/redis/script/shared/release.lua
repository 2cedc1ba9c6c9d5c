local subscribers = 0
if is_exclusive then
  redis.call('DEL', KEYS[1])
  subscribers = redis.pcall('PUBLISH', KEYS[1], '0')
  give_turn(KEYS[1], subscribers)
else
  if not till then return 0 end
  ends[own] = nil
  redis.call('HDEL', KEYS[1], own)
  local changed = settle()
  if type(changed) == 'table' then return changed end
  local _, mark = living('w')
  local readers, last_reader = living('r')
  local permits, last_permit = living('p')
  if permits > 0 and mark == 0 then
    subscribers = redis.pcall('PUBLISH', KEYS[1], 'r')
  elseif readers == 0 and permits == 0 and mark == 0 then
    subscribers = redis.pcall('PUBLISH', KEYS[1], '0')
  end
  -- A waiting writer sleeps until the last holder ends.
  if mark > 0 and math.max(last_reader, last_permit) < till then
    subscribers = redis.pcall('PUBLISH', KEYS[1], 'w')
  end
end
