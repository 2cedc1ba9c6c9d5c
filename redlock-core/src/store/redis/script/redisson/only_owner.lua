-- Returns the owner of the hash and the reply for a key that is no lock of one holder. The length is read before the hash,
-- because a hash of another program may be long.
local function only_owner(key)
  local length = redis.pcall('HLEN', key)
  if type(length) == 'table' then
    return nil, string.find(length.err, 'WRONGTYPE', 1, true) and {-3} or length
  end
  if length == 0 then return nil, {0} end
  if length > 2 then return nil, {-3} end
  local fields, owner = redis.call('HGETALL', key), nil
  for index = 1, #fields, 2 do
    if fields[index] ~= 'mode' or fields[index + 1] ~= 'exclusive' then
      if owner then return nil, {-3} end
      owner = fields[index]
    end
  end
  if not owner then return nil, {-3} end
  return owner
end

local owner, other = only_owner(KEYS[1])
if not owner then return other end
local id, left = string.sub(redis.sha1hex(owner), 1, 16), redis.call('PTTL', KEYS[1])

