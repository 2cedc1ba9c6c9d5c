local highest = 0
for index = count + 1, #KEYS do
  local number = tonumber(redis.call('GET', KEYS[index]) or 0)
  -- The negated comparison makes nan fail too. From 2^53 on, Lua cannot distinguish a number from the next.
  if not number or not (number < 9007199254740991) then
    return redis.error_reply('ERR the fencing counter is not a number below 2^53')
  end
  highest = math.max(highest, number)
end
