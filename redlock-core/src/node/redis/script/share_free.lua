-- token, 'r' for a reader or 'p' for a permit, lease, number of permits or 0
local key, own = KEYS[1], ARGV[2] .. ':' .. ARGV[1]
-- Most shared locks are free. Such a lock needs none of the functions below.
local low = redis.pcall('ZRANGE', key, '0', '2', 'WITHSCORES')
-- Every lock has a deadline, so this script writes nothing if PEXPIREAT is not permitted. Redis 6.2 has no function for this
-- check.
if #low == 0 and not low.err and not (redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIREAT', key, '1')) then
  local time = redis.call('TIME')
  local till = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3])
  local added = redis.pcall('ZADD', key, '0', 'shared', till, own)
  if type(added) == 'table' then return added end
  local expired = redis.pcall('PEXPIREAT', key, till)
  if type(expired) == 'table' then
    redis.call('DEL', key)
    return expired
  end
  return redis.status_reply('OK')
end

