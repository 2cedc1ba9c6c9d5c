-- The owner may have lost some of the keys. All of them are set again then.
local owned = 0
for index = 1, count do
  local left = redis.call('PTTL', KEYS[index])
  if left ~= -2 then
    local value = read(KEYS[index])
    if type(value) == 'table' then return value end
    if value == -3 then return {index - 1, -3} end
    if value ~= ARGV[1] then return {index - 1, left} end
    owned = owned + 1
    if owned == count then return {0, left} end
  end
end
