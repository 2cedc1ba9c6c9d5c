-- Returns the token at a key, or false; for a key of another type -3, and for another error the error.
local function read(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' and string.find(value.err, 'WRONGTYPE', 1, true) then return -3 end
  return value
end
