-- Returns the token at a key, or false; -4 for a shared lock, -3 for another type, and for another error the error.
local function read(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' or not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  return redis.pcall('HGET', key, 'mode') == 'shared' and -4 or -3
end
