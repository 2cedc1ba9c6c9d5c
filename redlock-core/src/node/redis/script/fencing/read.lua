local count = tonumber(redis.call('GET', KEYS[2]) or 0)
-- The negated comparison makes nan fail too. From 2^53 on, Lua cannot distinguish a number from the next.
if not count or not (count < 9007199254740991) then
  return redis.error_reply('ERR the fencing counter is not a number below 2^53')
end
