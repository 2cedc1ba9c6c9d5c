-- At least the time in microseconds, so that the number grows although the server has lost its data.
local time = redis.call('TIME')
-- Lua would write so large a number with an exponent.
local number = string.format('%.0f', math.max(count, time[1] * 1000000 + time[2]) + 1)
redis.call('SET', KEYS[2], number)
