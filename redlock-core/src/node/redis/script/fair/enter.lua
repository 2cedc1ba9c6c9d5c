for index = 3, #ARGV, 2 do
  local arrival = math.max(1, now - ARGV[index + 1])
  -- A ticket that is in the queue already keeps its place.
  redis.call('ZADD', KEYS[1], 'NX', text(arrival), ARGV[1] .. ':' .. ARGV[index])
end
