local changed = set(own, math.max(till, now + ARGV[2]))
if type(changed) == 'table' then return changed end
return redis.status_reply('OK')
