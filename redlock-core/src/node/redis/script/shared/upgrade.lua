-- The second argument is the token of the exclusive lock. Others that share the lock refuse the upgrade. The reply is
-- then the time until the last of them ends, in a list.
if value == ARGV[2] then return 1 end
if not till then return 0 end
local last = -1
for field, other in pairs(ends) do
  local kind = string.sub(field, 1, 1)
  if field ~= own and other >= now and (kind == 'r' or kind == 'p') then
    last = math.max(last, other - now)
  end
end
if last >= 0 then return {last} end
redis.call('SET', KEYS[1], ARGV[2], 'PX', string.format('%.0f', math.max(till - now, 1)))
return 1
