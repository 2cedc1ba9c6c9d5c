local count = tonumber(redis.call('GET', KEYS[2]) or 0)
-- Written so that nan fails too. From 2^53 on, a number cannot be told from the next one.
if not count or not (count < 9007199254740991) then
  return redis.error_reply('ERR the fencing counter is not a number below 2^53')
end
