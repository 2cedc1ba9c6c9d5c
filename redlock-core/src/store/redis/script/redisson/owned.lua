-- The result is 1 if the owner is in the hash.
local owned = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(owned) == 'table' then
  return string.find(owned.err, 'WRONGTYPE', 1, true) and -3 or owned
end
if owned ~= 1 then return 0 end
