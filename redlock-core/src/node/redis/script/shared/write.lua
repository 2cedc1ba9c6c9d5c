-- Removes the entries that have ended. The key lives as long as its last entry. Returns a table after an error.
local function settle()
  local last = 0
  for field, till in pairs(ends) do
    if till < now then redis.call('HDEL', KEYS[1], field) else last = math.max(last, till) end
  end
  if last == 0 then return redis.call('DEL', KEYS[1]) end
  return redis.pcall('PEXPIREAT', KEYS[1], string.format('%.0f', last))
end

-- Sets the end of an entry. Returns a table after an error.
local function set(field, till)
  -- Redis keeps the writes of a script that fails, but every lock has a deadline. So this function writes nothing
  -- if PEXPIREAT is not permitted. Redis 6.2 has no function for this check.
  if redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIREAT', KEYS[1], '1') then
    return redis.pcall('PEXPIREAT', KEYS[1], '1')
  end
  local is_new = next(ends) == nil
  ends[field] = till
  local changed = redis.pcall('HSET', KEYS[1], 'mode', 'shared', field, string.format('%.0f', till))
  if type(changed) == 'table' then return changed end
  changed = settle()
  if type(changed) == 'table' then
    if is_new then redis.call('DEL', KEYS[1]) else redis.call('HDEL', KEYS[1], field) end
  end
  return changed
end
