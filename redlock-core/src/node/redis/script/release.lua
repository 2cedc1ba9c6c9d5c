-- token, kind, time for which the lock stays or ''
-- Readers that several writers have overtaken listen on a channel of their own. Gives them a turn after a release of which
-- anybody was notified: for a moment, an entry keeps writers out. The lock is free already, so an error does not fail the
-- release.
local function give_turn(key, subscribers)
  if type(subscribers) ~= 'number' or subscribers == 0 then return end
  local readers = redis.pcall('PUBLISH', key .. ':readers', '0')
  if type(readers) ~= 'number' or readers == 0 or redis.pcall('TIME').err then return end
  set(key, 't', -now() - TURN)
end

-- Whom the end of a shared holder's entry at `till` concerns.
local function audience(key, till)
  local last, holder = member(key, -1)
  if mark_end(key) > 0 then
    -- A waiting writer sleeps until the last holder ends, and keeps all others out.
    return holder < till and 'w'
  end
  if holder == 0 then return '0' end
  return string.sub(last, 1, 1) == 'p' and 'r'
end

local result, most = 1, 0
for _, key in ipairs(KEYS) do
  local own, reply = mine(key, ARGV[2])
  local message = '0'
  if not own then
    -- The keys that the token still has are released all the same.
    if result == 1 then result = reply end
    message = false
  elseif own == true then
    if ARGV[3] == '' then
      redis.call('DEL', key)
    elseif redis.call('PTTL', key) > tonumber(ARGV[3]) then
      redis.call('PEXPIRE', key, ARGV[3])
    end
  elseif ARGV[3] == '' then
    redis.call('ZREM', key, ARGV[2] .. ':' .. ARGV[1])
    message = audience(key, own)
    expire(key)
  elseif now() + ARGV[3] < own then
    local failed = set(key, ARGV[2] .. ':' .. ARGV[1], now() + ARGV[3])
    if failed then return failed end
  end
  if message then
    -- A denied PUBLISH does not fail the release.
    local subscribers = redis.pcall('PUBLISH', key, message)
    if own == true and ARGV[3] == '' then give_turn(key, subscribers) end
    if type(subscribers) == 'number' then most = math.max(most, subscribers) end
  end
end
if result ~= 1 then return result end
return 1 + most
