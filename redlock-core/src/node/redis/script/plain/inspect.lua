if is_shared then return -4 end
return redis.call('PTTL', KEYS[1])
