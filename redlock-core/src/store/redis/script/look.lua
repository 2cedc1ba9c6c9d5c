-- the most members that are read
local key, most = KEYS[1], tonumber(ARGV[1])
local value = read(key, 'x')
if type(value) == 'table' then return value end
if value == false then return {0} end
if type(value) == 'string' then
  local name, since = described(value)
  return {1, id(value), name, since, redis.call('PTTL', key)}
end
if value ~= -4 then return {value} end
-- The set has `shared`, perhaps a turn, and an entry for each holder and each waiting writer. A longer one is not read.
if redis.call('ZRANGE', key, most, most)[1] then return {-5} end
local members, writers, holders = redis.call('ZRANGE', key, '0', '-1', 'WITHSCORES'), 0, {}
for index = 1, #members, 2 do
  local member, till = members[index], ends(members[index + 1])
  if till > 0 then
    local name, since = described(owner(member))
    for _, item in ipairs({id(owner(member)), name, since, till - now()}) do holders[#holders + 1] = item end
  elseif string.sub(member, 1, 2) == 'w:' then
    writers = writers + 1
  end
end
return {2, writers, holders}
