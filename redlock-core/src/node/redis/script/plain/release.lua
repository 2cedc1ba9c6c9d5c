redis.call('DEL', KEYS[1])
local subscribers = redis.pcall('PUBLISH', KEYS[1], '0')
give_turn(KEYS[1], subscribers)
