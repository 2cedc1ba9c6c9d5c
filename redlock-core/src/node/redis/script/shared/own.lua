-- The entry of this token, whether it is a reader or the holder of a permit, and its end if it lives.
local own = ends['p:' .. ARGV[1]] and 'p:' .. ARGV[1] or 'r:' .. ARGV[1]
local till = ends[own]
if till and till < now then till = nil end

-- Returns the number of upgrades of this token's exclusive lock, which follows the token; nil for another token.
local function upgrades(exclusive)
  if exclusive == ARGV[1] then return 0 end
  local length = #ARGV[1] + 1
  if exclusive and string.sub(exclusive, 1, length) == ARGV[1] .. '#' then
    return tonumber(string.sub(exclusive, length + 1))
  end
end

-- Whether this token has an exclusive lock here: a downgrade has not reached this server, or an upgrade has reached it,
-- but no quorum of servers.
local upgraded = upgrades(value)
local is_exclusive = upgraded ~= nil
