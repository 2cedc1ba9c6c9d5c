-- The value at the key: the token of the holder, or false. Any error but that of the type is returned as it is.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return -3 end
  return value
end
