-- Readers that several writers have overtaken listen on a channel of their own. Gives them a turn after a release of
-- which anybody was notified: for a moment, an entry keeps writers out. The lock is free already, so an error here
-- does not fail the release.
local function give_turn(key, subscribers)
  if type(subscribers) ~= 'number' or subscribers == 0 then return end
  local readers = redis.pcall('PUBLISH', key .. ':readers', '0')
  if type(readers) ~= 'number' or readers == 0 then return end
  local time = redis.pcall('TIME')
  if time.err then return end
  local till = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + 50)
  redis.pcall('HSET', key, 'mode', 'shared', 't', till)
  local deadline = redis.pcall('PEXPIREAT', key, till)
  if type(deadline) == 'table' then redis.pcall('DEL', key) end
end
