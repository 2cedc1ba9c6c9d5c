-- Never below the time in microseconds, so that numbers grow even after the server has lost its data.
local time = redis.call('TIME')
-- Without the format, Lua would write such a large number with an exponent.
local number = string.format('%.0f', math.max(highest, time[1] * 1000000 + time[2]) + 1)
for index = count + 1, #KEYS do redis.call('SET', KEYS[index], number) end
