-- Releases the keys that the owner still has, even if it has lost others.
local owned, result = {}, 1
for index = 1, count do
  local value = read(KEYS[index])
  if type(value) == 'table' then return value end
  if value == ARGV[1] then
    owned[#owned + 1] = KEYS[index]
  elseif result == 1 then
    result = value == -3 and -3 or 0
  end
end
