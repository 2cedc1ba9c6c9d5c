-- token, 'r' for a reader or 'p' for a permit, lease, number of permits or 0
local key, own = KEYS[1], ARGV[2] .. ':' .. ARGV[1]
-- Most shared locks are free, or have holders but neither marks nor a turn. Such a lock needs none of the functions below.
local low = redis.pcall('ZRANGE', key, '0', '1', 'WITHSCORES')
-- Every lock has a deadline, so this script writes nothing if PEXPIREAT is not permitted. Redis 6.2 has no function for this
-- check.
local is_free = #low == 0 and not low.err
  and not (redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIREAT', key, '1'))
-- Readers and holders of permits exclude each other, so all holders are of the kind of the first one.
local left = low[1] == 'shared' and low[2] == '0' and low[3] and string.sub(low[3], 1, 1) == ARGV[2]
  and tonumber(redis.pcall('PTTL', key)) or -1
if is_free or left >= 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local till = string.format('%.0f', now + ARGV[3])
  if is_free then
    local added = redis.pcall('ZADD', key, '0', 'shared', till, own)
    if type(added) == 'table' then return added end
    local expired = redis.pcall('PEXPIREAT', key, till)
    if type(expired) == 'table' then
      redis.call('DEL', key)
      return expired
    end
    return redis.status_reply('OK')
  end
  -- If the first holder has not ended, no holder has. If n permits are taken, the n-th member from the end is a holder.
  if tonumber(low[4]) >= now
    and (ARGV[4] == '0' or (redis.call('ZRANGE', key, -ARGV[4], -ARGV[4])[1] or 'shared') == 'shared') then
    -- The key lives as long as its last holder. With a lease of at least the time to live of the key, that is this one.
    local last = till
    if tonumber(ARGV[3]) < left then
      local holder = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2]
      if tonumber(holder) > now + ARGV[3] then last = string.format('%.0f', math.min(holder, 1e15)) end
    end
    -- The first write needs no memory: see `set`.
    local expired = redis.pcall('PEXPIREAT', key, last)
    local added = type(expired) == 'table' and expired or redis.pcall('ZADD', key, 'GT', till, own)
    return type(added) == 'table' and added or redis.status_reply('OK')
  end
end

