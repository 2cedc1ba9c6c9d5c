-- Readers that several writers have overtaken listen on a channel of their own. Gives them a turn after a release of which
-- anybody was notified: for a moment, an entry keeps writers out. The lock is free already, so an error does not fail the
-- release.
local function give_turn(key, subscribers)
  if type(subscribers) ~= 'number' or subscribers == 0 then return end
  local readers = redis.pcall('PUBLISH', key .. ':readers', '0')
  if type(readers) ~= 'number' or readers == 0 or redis.pcall('TIME').err then return end
  set(key, 't', -now() - TURN)
end

