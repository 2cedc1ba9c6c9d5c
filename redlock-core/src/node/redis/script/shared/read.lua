-- Reads the key. `value` is the token of an exclusive holder, or false. `ends` maps the entries of a shared lock to
-- their ends, in milliseconds of the server's clock: `r:` and a token for a reader, `p:` and a token for the holder
-- of a permit, `w:` and a mark for a waiting writer, and `t` for the turn of the readers.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value, ends = false, {}
local fields = redis.pcall('HGETALL', KEYS[1])
if fields.err then
  if not string.find(fields.err, 'WRONGTYPE', 1, true) then return fields end
  value = redis.pcall('GET', KEYS[1])
  if type(value) == 'table' then
    if string.find(value.err, 'WRONGTYPE', 1, true) then return -3 end
    return value
  end
else
  local is_lock = #fields == 0
  for index = 1, #fields, 2 do
    local field, till = fields[index], tonumber(fields[index + 1])
    if field == 'mode' then
      is_lock = fields[index + 1] == 'shared'
    elseif till and till < 1e15 and (field == 't' or string.find(field, '^[rpw]:')) then
      ends[field] = till
    else
      return -3
    end
  end
  if not is_lock then return -3 end
end

-- Returns how many entries of a kind live, and the latest of their ends. Like a key, an entry lives through the
-- millisecond of its end.
local function living(kind)
  local count, last = 0, 0
  for field, till in pairs(ends) do
    if till >= now and string.sub(field, 1, 1) == kind then
      count, last = count + 1, math.max(last, till)
    end
  end
  return count, last
end
