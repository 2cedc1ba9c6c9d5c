-- owner, lease
--
-- The sides of Redisson's read-write lock look at the field `mode` alone: without it they would enter the lock of an owner,
-- and cut its lease. They refuse a mode that they do not know. Redisson's RLock ignores the field.
local MODE = 'exclusive'

if redis.call('EXISTS', KEYS[1]) == 1 then
  -- The result is 1 if the owner is in the hash.
  local owned = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
  if type(owned) == 'table' then
    return string.find(owned.err, 'WRONGTYPE', 1, true) and {0, -3} or owned
  end
  local held = {0, redis.call('PTTL', KEYS[1])}
  -- One HSCAN reads the whole hash of a lock, and a part of a large one. Several owners, or another `mode`, are not the lock
  -- of one holder. A denied command does not change the refusal.
  local scan, owners = redis.pcall('HSCAN', KEYS[1], '0'), {}
  if scan[1] == '0' then
    for index = 1, #scan[2], 2 do
      local field, value = scan[2][index], scan[2][index + 1]
      if field ~= 'mode' or value ~= MODE then owners[#owners + 1] = field end
    end
  end
  if #owners == 1 then held[3] = string.sub(redis.sha1hex(owners[1]), 1, 16) end
  return held
end
-- Redis keeps the writes of a script that fails, but every lock has a deadline. So this script writes nothing if PEXPIRE is
-- not permitted. Redis 6.2 has no function for this check.
if redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIRE', KEYS[1], ARGV[2]) then
  return redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
end
local number = redis.status_reply('OK')
if #KEYS > 1 then
  number = next_number(1)
  if type(number) == 'table' then return number end
  set_counters(1, number)
end
redis.call('HSET', KEYS[1], ARGV[1], '1', 'mode', MODE)
local deadline = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
if type(deadline) == 'table' then
  redis.call('DEL', KEYS[1])
  return deadline
end
return number
