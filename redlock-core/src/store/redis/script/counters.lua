-- Returns the next number of the counters behind the first `count` keys, or an error as a table. It is never below the time
-- in microseconds, so that numbers grow even after the server has lost its data.
local function next_number(count)
  local time = redis.call('TIME')
  local number = time[1] * 1000000 + time[2]
  for index = count + 1, #KEYS do
    local last = tonumber(redis.call('GET', KEYS[index]) or 0)
    -- The negated comparison makes nan fail too. From 2^53 on, Lua cannot distinguish a number from the next.
    if not last or not (last < 9007199254740991) then
      return redis.error_reply('ERR the fencing counter is not a number below 2^53')
    end
    number = math.max(number, last)
  end
  -- Without the format, Lua would write such a large number with an exponent.
  return string.format('%.0f', number + 1)
end

local function set_counters(count, number)
  for index = count + 1, #KEYS do redis.call('SET', KEYS[index], number) end
end

