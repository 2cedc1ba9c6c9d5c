-- id of the holder, channel
if id ~= ARGV[1] then return {0} end
-- Every lock has a deadline.
if left == -1 then return {-1} end
redis.call('DEL', KEYS[1])
-- A denied PUBLISH does not change the removal.
redis.pcall('PUBLISH', ARGV[2], '0')
return {1, left}
