if was_present then redis.call('ZADD', KEYS[1], text(-now - presence), ARGV[1]) end
