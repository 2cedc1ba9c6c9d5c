local listeners = redis.pcall('PUBLISH', KEYS[1], '0')
