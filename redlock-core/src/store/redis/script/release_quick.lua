-- Most releases: of a lock of one key that its owner has alone, or shares with other holders while there are neither marks
-- nor a turn. An exclusive lock needs none of the functions below unless anybody waits for the release, and a shared lock
-- needs none.
local notified
if not ARGV[2] and not KEYS[2] then
  local key = KEYS[1]
  if redis.pcall('GET', key) == ARGV[1] then
    redis.call('DEL', key)
    notified = redis.pcall('PUBLISH', key, '0')
    -- A denied PUBLISH does not fail the release.
    if notified == 0 or type(notified) ~= 'number' then return 1 end
  end
elseif ARGV[2] and not ARGV[3] and not KEYS[2] then
  local key, own = KEYS[1], ARGV[2] .. ':' .. ARGV[1]
  local low = redis.pcall('ZRANGE', key, '0', '2')
  local left = low[1] == 'shared' and tonumber(redis.pcall('PTTL', key)) or -1
  if left >= 0 and not low[3] then
    -- The key ends with its last entry, so its only entry has not ended.
    if low[2] == own then
      redis.call('DEL', key)
      return 1 + (tonumber(redis.pcall('PUBLISH', key, '0')) or 0)
    end
  elseif left >= 0 then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    -- If the first holder has not ended, no holder has.
    if tonumber(redis.call('ZSCORE', key, low[2])) >= now and redis.call('ZREM', key, own) == 1 then
      -- Without marks, the key lives as long as its last holder. That changes only if this was the last one.
      local last = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2]
      if tonumber(last) ~= now + left then redis.pcall('PEXPIREAT', key, last) end
      -- Another holder of a permit remains, so the release concerns only callers that wait for a permit.
      local subscribers = ARGV[2] == 'p' and redis.pcall('PUBLISH', key, 'r')
      return 1 + (tonumber(subscribers) or 0)
    end
  end
end

