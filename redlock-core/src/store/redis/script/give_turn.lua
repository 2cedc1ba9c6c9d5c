-- Follows a release by a command, of which subscribers were notified. Another caller may have the lock by now: a reader needs no
-- turn any more, and a writer has come first.
if redis.call('PTTL', KEYS[1]) ~= -2 then return 0 end
give_turn(KEYS[1], 1)
return 1
