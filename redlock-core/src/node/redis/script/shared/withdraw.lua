-- The first argument is a mark instead of a token.
local mark = 'w:' .. ARGV[1]
if value or not ends[mark] then return 1 end
ends[mark] = nil
redis.call('HDEL', KEYS[1], mark)
local changed = settle()
if type(changed) == 'table' then return changed end
if living('w') == 0 then redis.pcall('PUBLISH', KEYS[1], 'r') end
return 1
