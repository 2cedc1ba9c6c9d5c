-- token, lease or '' to look up only, number of locks, mark or '', life of the mark
local lease, count, mark = tonumber(ARGV[2]), tonumber(ARGV[3]), 'w:' .. ARGV[4]
local refused, marked, met_set = nil, {}, nil
for index = 1, count do
  local key = KEYS[index]
  local value = read(key, 'x')
  if type(value) == 'table' then return value end
  if value == -4 then
    met_set = 1
    local latest, holder = member(key, -1)
    local last = math.max(holder, -(redis.call('ZSCORE', key, 't') or 0))
    -- Marks alone refuse nobody. Only the first key that refuses gets the mark, so that a caller of several keys keeps
    -- nobody out of a key that it cannot use. Keys that it has waited for keep theirs.
    if last == 0 then
      if redis.call('ZSCORE', key, mark) then marked[#marked + 1] = key end
    elseif not refused then
      refused = {index - 1, last - now(), 1, label(owner(latest))}
      marked[#marked + 1] = key
    end
  elseif value == ARGV[1] then
    -- An acquisition that comes again never shortens the lease.
    if lease then lease = math.max(lease, redis.call('PTTL', key)) end
  elseif value then
    if type(value) == 'number' then return {index - 1, value} end
    local held = {index - 1, redis.call('PTTL', key), '', label(value)}
    -- The holder is named if no other one has any of the keys.
    for other = index + 1, count do
      local found = redis.pcall('GET', KEYS[other])
      if found and found ~= value and found ~= ARGV[1] then return held end
    end
    if not refused then held[3] = id(value) end
    return held
  end
end
if refused then
  -- Only shared holders are in the way.
  if ARGV[4] ~= '' then
    for _, key in ipairs(marked) do
      local failed = set(key, mark, -now() - ARGV[5])
      if failed then return failed end
    end
  end
  return refused
end
if not lease then return {0, met_set and 0 or -2, met_set} end

local number = redis.status_reply('OK')
if #KEYS > count then
  number = next_number(count)
  if type(number) == 'table' then return number end
  set_counters(count, number)
end
for index = 1, count do
  local set = redis.pcall('SET', KEYS[index], ARGV[1], 'PX', string.format('%.0f', lease))
  if set.err then
    -- Redis keeps the writes of a script that fails, but nothing may be half set.
    for before = 1, index - 1 do redis.pcall('DEL', KEYS[before]) end
    return set
  end
end
return number
