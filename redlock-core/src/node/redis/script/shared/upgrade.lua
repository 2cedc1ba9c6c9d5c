-- The second argument is the token of the exclusive lock, the third its lease. Others that share the lock refuse the
-- upgrade. The reply is then the time until the last of them ends, in a list.
local rest
if is_exclusive and upgraded <= upgrades(ARGV[2]) then
  rest = redis.call('PTTL', KEYS[1])
elseif till then
  rest = till - now
  local last = -1
  for field, other in pairs(ends) do
    local kind = string.sub(field, 1, 1)
    if field ~= own and other >= now and (kind == 'r' or kind == 'p') then
      last = math.max(last, other - now)
    end
  end
  if last >= 0 then return {last} end
else
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', string.format('%.0f', math.max(rest, ARGV[3])))
return 1
