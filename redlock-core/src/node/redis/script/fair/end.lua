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
