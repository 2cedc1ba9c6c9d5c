-- The value is the token of the holder, or false. Returns every error except a wrong type as it is.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return -3 end
  return value
end
