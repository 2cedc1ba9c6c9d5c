-- The value is the token of the holder, or false for no holder and for a shared lock. Returns every error except a
-- wrong type as it is.
local value, is_shared = redis.pcall('GET', KEYS[1]), false
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  if redis.pcall('HGET', KEYS[1], 'mode') ~= 'shared' then return -3 end
  value, is_shared = false, true
end
