local subscribers = redis.pcall('PUBLISH', KEYS[1], '0')
