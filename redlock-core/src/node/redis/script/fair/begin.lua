-- The queue of a lock is a sorted set. A ticket, `process:number`, has the time of its arrival as score, in
-- microseconds. A process, without a number, has the negative end of its presence as score.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local presence = tonumber(ARGV[2])
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
