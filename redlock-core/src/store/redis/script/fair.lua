-- process, length of its presence in microseconds, action, arguments of the action
--
-- The queue of a lock is a sorted set. A ticket, `process:number`, has the time of its arrival as score, in
-- microseconds. A process, without a number, has the negative end of its presence as score.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local presence, action = tonumber(ARGV[2]), ARGV[3]
local function text(number) return string.format('%.0f', number) end
local function process_of(ticket) return string.match(ticket, '^[^:]*') end
local function first_ticket()
  return redis.call('ZRANGEBYSCORE', KEYS[1], '(0', '+inf', 'LIMIT', 0, 1)[1]
end
local first_before = first_ticket()

-- Removes the processes whose presence has ended, with all of their tickets. A presence that ends more than 10 s from
-- now was set before the clock was stepped back.
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], text(-now), '(0')
for _, process in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. text(-now - 10000000))) do
  ended[#ended + 1] = process
end
if #ended > 0 then
  local is_ended = {}
  for _, process in ipairs(ended) do is_ended[process] = true end
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if is_ended[process_of(member)] then redis.call('ZREM', KEYS[1], member) end
  end
end
local was_present = redis.call('ZSCORE', KEYS[1], ARGV[1])

if action == 'enter' or action == 'refresh' and was_present then
  local until_millis = text(math.floor((now + presence) / 1000))
  -- Redis keeps the writes of a script that fails, but every queue has a deadline. So this script adds nothing if PEXPIREAT
  -- is not permitted. Redis 6.2 has no function for this check.
  if redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIREAT', KEYS[1], until_millis) then
    return redis.pcall('PEXPIREAT', KEYS[1], until_millis)
  end
  redis.call('ZADD', KEYS[1], text(-now - presence), ARGV[1])
  -- No presence ends later than this one.
  local deadline = redis.pcall('PEXPIREAT', KEYS[1], until_millis)
  if type(deadline) == 'table' then
    redis.call('DEL', KEYS[1])
    return deadline
  end
end
if action == 'enter' then
  -- Pairs of a ticket and the microseconds that its caller has waited.
  for index = 4, #ARGV, 2 do
    local arrival = math.max(1, now - ARGV[index + 1])
    -- A ticket that is in the queue already keeps its place.
    redis.call('ZADD', KEYS[1], 'NX', text(arrival), ARGV[1] .. ':' .. ARGV[index])
  end
elseif action == 'leave' then
  for index = 4, #ARGV do redis.call('ZREM', KEYS[1], ARGV[1] .. ':' .. ARGV[index]) end
end

local present = was_present and 1 or 0
local first = first_ticket()
if not first then
  redis.call('DEL', KEYS[1])
  return {text(now), present, '', 0}
end
local process = process_of(first)
if first ~= first_before then
  -- A denied PUBLISH does not fail the operation: the process finds out by itself.
  local function notify(other)
    if other ~= ARGV[1] then redis.pcall('PUBLISH', KEYS[1] .. ':' .. other, '0') end
  end
  notify(process)
  if first_before and process_of(first_before) ~= process then notify(process_of(first_before)) end
end
local left = -redis.call('ZSCORE', KEYS[1], process) - now
return {text(now), present, first, left}
