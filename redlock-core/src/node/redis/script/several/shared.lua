local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Returns the time until the last holder of a shared lock or the turn of the readers ends, and -1 if there are only marks.
-- Returns nil for a hash with a field that no shared lock has.
local function rest_of(key)
  local last, fields = -1, redis.call('HGETALL', key)
  for index = 1, #fields, 2 do
    local field, till = fields[index], tonumber(fields[index + 1])
    if field ~= 'mode' then
      if not till or till >= 1e15 or not (field == 't' or string.find(field, '^[rpw]:')) then return nil end
      if string.sub(field, 1, 1) ~= 'w' then last = math.max(last, till - now) end
    end
  end
  return last
end

-- Sets the mark of a waiting writer, which is the fourth argument, for the time of the fifth argument. After a backward
-- step of the clock, an earlier end would be before that of the key.
local function set_mark(key)
  local mark = 'w:' .. ARGV[4]
  local till = math.max(redis.call('HGET', key, mark) or 0, now + ARGV[5])
  redis.call('HSET', key, mark, string.format('%.0f', till))
  if redis.call('PTTL', key) < tonumber(ARGV[5]) then redis.call('PEXPIRE', key, ARGV[5]) end
end
