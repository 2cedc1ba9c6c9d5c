-- Whether the owner is in the hash. Any error but that of the type is returned as it is.
local owned = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(owned) == 'table' then
  if string.find(owned.err, 'WRONGTYPE', 1, true) then return -3 end
  return owned
end
