local listeners = redis.pcall('PUBLISH', ARGV[#ARGV], '0')
