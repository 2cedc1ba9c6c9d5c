-- token, kind, time for which the lock stays. A release of an exclusive lock has the token alone.
local kind, rest = ARGV[2] or 'x', tonumber(ARGV[3])

if notified then
  give_turn(KEYS[1], notified)
  return 1 + notified
end

-- Whom the end of a shared holder's entry at `till` concerns.
local function audience(till, has_mark, last, holder)
  if has_mark then
    -- A waiting writer sleeps until the last holder ends, and keeps all others out.
    return holder < till and 'w'
  end
  if holder == 0 then return '0' end
  return string.sub(last, 1, 1) == 'p' and 'r'
end

local result, most = 1, 0
for _, key in ipairs(KEYS) do
  local own, reply = mine(key, kind)
  local message = '0'
  if not own then
    -- The keys that the token still has are released all the same.
    if result == 1 then result = reply end
    message = false
  elseif own == true then
    if not rest then
      redis.call('DEL', key)
    elseif redis.call('PTTL', key) > rest then
      redis.call('PEXPIRE', key, ARGV[3])
    end
  elseif rest then
    local failed = now() + rest < own and set(key, kind .. ':' .. ARGV[1], now() + rest)
    if failed then return failed end
  else
    redis.call('ZREM', key, kind .. ':' .. ARGV[1])
    local last, holder = member(key, '-1')
    message = audience(own, mark_end(key) > 0, last, holder)
    expire(key)
  end
  if message then
    -- A denied PUBLISH does not fail the release.
    local subscribers = redis.pcall('PUBLISH', key, message)
    if own == true and not rest then give_turn(key, subscribers) end
    if type(subscribers) == 'number' then most = math.max(most, subscribers) end
  end
end
if result ~= 1 then return result end
return 1 + most
