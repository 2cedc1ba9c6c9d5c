local value = read(key, ARGV[2], low)
if type(value) == 'table' then return value end
if type(value) == 'string' then
  return {0, redis.call('PTTL', key), id(value), label(value)}
end
if value and value ~= -4 then return {0, value} end
local till = value and redis.call('ZSCORE', key, own)
if value and not till then
  local mark = mark_end(key)
  if mark > 0 and not redis.call('ZSCORE', key, 't') then return {0, mark - now()} end
  local latest, holder = member(key, '-1')
  -- There is none if all entries had ended.
  local name = latest and label(owner(latest)) or ''
  -- Readers and holders of permits exclude each other.
  if holder > 0 and string.sub(latest, 1, 1) ~= ARGV[2] then return {0, holder - now(), '', name} end
  if tonumber(ARGV[4]) > 0 then
    local _, taken = member(key, -ARGV[4])
    if taken > 0 then return {0, taken - now(), '', name} end
  end
end
local failed = set(key, own, math.max(till or 0, now() + ARGV[3]))
return failed or redis.status_reply('OK')
