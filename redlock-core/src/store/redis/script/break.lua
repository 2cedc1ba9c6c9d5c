-- id of the holder, the most members that are read
local key, most = KEYS[1], tonumber(ARGV[2])
local value = read(key, 'x')
if type(value) == 'table' then return value end
if value == false then return {0} end
local left
if type(value) == 'string' then
  if id(value) ~= ARGV[1] then return {0} end
  left = redis.call('PTTL', key)
  -- Every lock has a deadline.
  if left == -1 then return {-1} end
  redis.call('DEL', key)
else
  if value ~= -4 then return {value} end
  if redis.call('ZRANGE', key, most, most)[1] then return {-5} end
  local members, found = redis.call('ZRANGE', key, '0', '-1', 'WITHSCORES'), nil
  for index = 1, #members, 2 do
    local till = ends(members[index + 1])
    if till > 0 and id(owner(members[index])) == ARGV[1] then
      found, left = members[index], till - now()
    end
  end
  if not found then return {0} end
  redis.call('ZREM', key, found)
  -- The holder is removed by now. Without the right to DEL, the set without holders stays until its end.
  pcall(expire, key)
end
-- All waiters look again. A denied PUBLISH does not change the removal.
redis.pcall('PUBLISH', key, '0')
return {1, left}
