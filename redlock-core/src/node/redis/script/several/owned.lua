for index = 1, count do
  local value = read(KEYS[index])
  if type(value) == 'table' then return value end
  if value == -3 then return -3 end
  if value ~= ARGV[1] then return 0 end
end
