-- KEYS are the locks, and behind them the fencing counters.
--
-- The value of an exclusive lock is the text of its token. The value of a shared lock is a sorted set: `shared` with the score 0, and
-- an entry for each reader (`r:` and the text), for each holder of a permit (`p:` and the text) and for each waiting writer
-- (`w:` and a mark), and `t`, the turn of the readers. The score of a holder is the end of its entry, in milliseconds by
-- the server's clock. The score of a mark and of the turn is the negative end. So the highest member is the holder that
-- ends last, and the lowest is the mark that ends last, or the turn. Like a key, an entry lives through the millisecond of
-- its end.
local MARK, TURN = 1000, 50

local function text(number) return string.format('%.0f', number) end

-- Returns the label of an owner, or an empty text. A text of any other form is of another library, and no part of it is shown.
local function label(owner)
  if #owner > 108 or string.find(string.sub(owner, 1, 32), '[^0-9a-f]') then return '' end
  return string.match(owner, '^@([!-~]+)/%d%d%d%d%d%d%d%d%d%d$', 33) or ''
end

-- Returns the owner of an entry of a shared lock. An entry of any other form is of another library, and has no label.
local function owner(entry) return string.match(entry, '^[rp]:(.*)') or ':' .. entry end

-- Returns the public id of an owner.
local function id(owner) return string.sub(redis.sha1hex(owner), 1, 16) end

-- Returns the label of an owner and its seconds since 1970, or two empty texts.
local function described(owner)
  local name = label(owner)
  return name, name ~= '' and string.sub(owner, -10) or ''
end

local clock
local function now()
  if not clock then
    local time = redis.call('TIME')
    clock = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return clock
end

-- Returns a score as a number. A greater one, such as `inf`, is no whole number of a reply.
local function ends(score) return math.min(tonumber(score), 1e15) end

-- Returns a member and its score. A missing one has the score 0.
local function member(key, index)
  local pair = redis.call('ZRANGE', key, index, index, 'WITHSCORES')
  return pair[1], ends(pair[2] or 0)
end

-- The key lives as long as its last entry. Returns an error as a table.
local function expire(key)
  local _, lowest = member(key, '0')
  local _, highest = member(key, '-1')
  local last = math.max(highest, -lowest)
  if last == 0 then return redis.call('DEL', key) end
  return redis.pcall('PEXPIREAT', key, text(last))
end

local function is_wrong_type(reply)
  return reply.err and string.find(reply.err, 'WRONGTYPE', 1, true)
end

-- Returns the token of an exclusive lock, false for a free lock, -4 for a shared lock, -1 for a shared lock without a time
-- to live, and -3 for anything else. Returns an error as a table.
--
-- Removes the entries of a shared lock that have ended. Marks and a turn are also removed if they end later than they can:
-- they were set before the clock was stepped back.
--
-- `low` are the first members with their scores, if the script has read them already and has not written since.
local function read(key, kind, low)
  if kind == 'x' then
    local value = redis.pcall('GET', key)
    if type(value) ~= 'table' or not is_wrong_type(value) then return value end
  end
  low = low or redis.pcall('ZRANGE', key, '0', '1', 'WITHSCORES')
  if low.err then
    if not is_wrong_type(low) then return low end
    local value = redis.pcall('GET', key)
    return type(value) == 'table' and is_wrong_type(value) and -3 or value
  end
  if not low[1] then return false end
  if redis.pcall('PTTL', key) == -1 and redis.call('ZSCORE', key, 'shared') == '0' then return -1 end
  -- Most shared locks have holders only, and none of them has ended.
  if low[1] == 'shared' and low[2] == '0' and tonumber(low[4] or 0) >= now() then return -4 end
  if redis.call('ZSCORE', key, 'shared') ~= '0' then return -3 end
  local removed = redis.call('ZREMRANGEBYSCORE', key, '(0', '(' .. text(now()))
    + redis.call('ZREMRANGEBYSCORE', key, '(' .. text(-now()), '(0')
    + redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. text(-now() - MARK))
  local turn = redis.call('ZSCORE', key, 't')
  if turn and -turn > now() + TURN then removed = removed + redis.call('ZREM', key, 't') end
  if removed > 0 then expire(key) end
  return -4
end

-- Sets the score of an entry. Returns an error as a table, and otherwise nil. A server whose memory is full refuses a script
-- whose first write needs memory. So the first write needs none, unless the key is new.
local function set(key, entry, score)
  -- Redis keeps the writes of a script that fails, but every lock has a deadline. So this function writes nothing if
  -- PEXPIREAT is not permitted. Redis 6.2 has no function for this check.
  if redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIREAT', key, '1') then
    return redis.pcall('PEXPIREAT', key, '1')
  end
  local left = redis.pcall('PTTL', key)
  if type(left) == 'number' and left > 0 then redis.call('ZREMRANGEBYSCORE', key, '(0', '(1') end
  local added = redis.pcall('ZADD', key, '0', 'shared', text(score), entry)
  if type(added) == 'table' then return added end
  local expired
  if added == 2 then
    expired = redis.pcall('PEXPIREAT', key, text(math.abs(score)))
  else
    expired = expire(key)
  end
  if type(expired) == 'table' then
    if added == 2 then redis.call('DEL', key) elseif added == 1 then redis.call('ZREM', key, entry) end
    return expired
  end
end

-- Returns the end of the latest mark, or 0.
local function mark_end(key)
  for index = 0, 1 do
    local entry, score = member(key, index)
    if score < 0 and entry ~= 't' then return -score end
  end
  return 0
end

-- Returns true if the token has the key alone. If it shares the key as `kind`, returns the end of its entry. A reader may
-- have the key alone: a downgrade has not reached this server. Otherwise returns nil and the reply: 0, -1, -3 or an error.
local function mine(key, kind)
  local value = read(key, kind)
  if value == ARGV[1] then return true end
  if type(value) == 'table' or value == -3 or value == -1 then return nil, value end
  local till = value == -4 and kind ~= 'x' and redis.call('ZSCORE', key, kind .. ':' .. ARGV[1])
  if till then return tonumber(till) end
  return nil, 0
end

