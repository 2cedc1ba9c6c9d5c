-- The owner may have lost some of the keys. All of them are set again then. Marks of waiting writers do not refuse a
-- key. If shared holders are the only obstacle, they get the mark of this writer.
local owned, refused, shared = 0, nil, {}
for index = 1, count do
  local left = redis.call('PTTL', KEYS[index])
  if left ~= -2 then
    local value = read(KEYS[index])
    if type(value) == 'table' then return value end
    if value == -3 then return {index - 1, -3} end
    if value == -4 then
      local rest = rest_of(KEYS[index])
      if not rest then return {index - 1, -3} end
      if rest >= 0 then
        refused = refused or {index - 1, rest, 1}
        shared[#shared + 1] = KEYS[index]
      end
    elseif value ~= ARGV[1] then
      return {index - 1, left}
    else
      owned = owned + 1
      if owned == count then return {0, left} end
    end
  end
end
if refused then
  if ARGV[4] ~= '' then
    for _, key in ipairs(shared) do set_mark(key) end
  end
  return refused
end
