-- token, kind, lease, and 1 if the server tracks the keys for the client
local ends = {}
for index, key in ipairs(KEYS) do
  local own, reply = mine(key, ARGV[2])
  if not own then return reply end
  ends[index] = own
end
for index, key in ipairs(KEYS) do
  if ends[index] ~= true then
    local failed = set(key, ARGV[2] .. ':' .. ARGV[1], math.max(ends[index], now() + ARGV[3]))
    if failed then return failed end
  elseif redis.call('PTTL', key) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', key, ARGV[3])
    -- A change ends the tracking of a key, and a read begins it again.
    if ARGV[4] then redis.call('PTTL', key) end
  end
end
return 1
