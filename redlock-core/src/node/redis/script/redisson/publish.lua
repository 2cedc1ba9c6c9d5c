local subscribers = redis.pcall('PUBLISH', ARGV[#ARGV], '0')
