-- The result is 1 if the owner is in the hash. Returns every error except a wrong type as it is.
local owned = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(owned) == 'table' then
  if string.find(owned.err, 'WRONGTYPE', 1, true) then return -3 end
  return owned
end
