if value then return redis.call('PTTL', KEYS[1]) end
