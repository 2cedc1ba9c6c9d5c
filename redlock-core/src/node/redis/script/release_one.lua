-- Most releases: of a lock of one key that its owner has alone. An exclusive lock needs none of the functions below unless
-- anybody waits for the release, and a shared lock needs none.
local notified
if #KEYS == 1 and not ARGV[3] then
  local alone
  if not ARGV[2] then
    alone = redis.pcall('GET', KEYS[1]) == ARGV[1]
  else
    local low = redis.pcall('ZRANGE', KEYS[1], '0', '2')
    -- The key ends with its last entry, so the only entry of a key with a time to live has not ended.
    alone = low[1] == 'shared' and low[2] == ARGV[2] .. ':' .. ARGV[1] and not low[3]
      and redis.pcall('PTTL', KEYS[1]) ~= -1
  end
  if alone then
    redis.call('DEL', KEYS[1])
    -- A denied PUBLISH does not fail the release.
    notified = redis.pcall('PUBLISH', KEYS[1], '0')
    if type(notified) ~= 'number' then notified = 0 end
    if ARGV[2] or notified == 0 then return 1 + notified end
  end
end

