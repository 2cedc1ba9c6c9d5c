for index = 3, #ARGV do redis.call('ZREM', KEYS[1], ARGV[1] .. ':' .. ARGV[index]) end
