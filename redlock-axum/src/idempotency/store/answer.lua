-- A record is the number in 16 digits, the 32 bytes of the fingerprint, and the answer, which is empty for a claim.
local key, action, number = KEYS[1], ARGV[1], ARGV[2]
local record = redis.call('get', key)
local is_own = record and string.sub(record, 1, 16) == number
local is_claim = record and #record == 48
if action == 'claim' then
  local fingerprint, keep, replaces = ARGV[3], ARGV[4], ARGV[5] == '1'
  if record and not (is_claim and replaces and string.sub(record, 17, 48) == fingerprint
      and tonumber(string.sub(record, 1, 16)) < tonumber(number)) then
    return record
  end
  redis.call('set', key, number .. fingerprint, 'PX', keep)
  return false
end
if action == 'store' then
  if not is_own then
    return 0
  end
  redis.call('set', key, string.sub(record, 1, 48) .. ARGV[3], 'PX', ARGV[4])
  return 1
end
if is_own and is_claim then
  redis.call('del', key)
end
return 0
