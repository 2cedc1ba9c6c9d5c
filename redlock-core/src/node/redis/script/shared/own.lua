-- The entry of this token, whether it is a reader or the holder of a permit, and its end if it lives.
local own = ends['p:' .. ARGV[1]] and 'p:' .. ARGV[1] or 'r:' .. ARGV[1]
local till = ends[own]
if till and till < now then till = nil end

-- Whether this token has an exclusive lock here: a downgrade has not reached this server.
local is_exclusive = value == ARGV[1]
