//! The counter that numbers the holders of fenced locks: one for each node and prefix, the second key
//! of the scripts.
//!
//! It has no time to live: it is only safe as long as it does not forget. A counter for each lock
//! would have to be kept for ever as well, and there is no end of those.

/// Counts one up, but not below the time in microseconds, so that the number grows although the
/// server has been restarted without its data. Leaves it in `number`, as text: Lua would write so
/// large a number with an exponent. From 2^53 on, its numbers cannot tell one from the next; the
/// comparison is written so that what is no number (`nan`) fails too.
macro_rules! count {
    () => {
        "\
local count = tonumber(redis.call('GET', KEYS[2]) or 0)
if not count or not (count < 9007199254740991) then
  return redis.error_reply('ERR the fencing counter is not a number below 2^53')
end
local time = redis.call('TIME')
local number = string.format('%.0f', math.max(count, time[1] * 1000000 + time[2]) + 1)
redis.call('SET', KEYS[2], number)
"
    };
}
pub(super) use count;

/// Raises the counter to the number that is the second argument.
macro_rules! confirm {
    () => {
        "\
local count = tonumber(redis.call('GET', KEYS[2]) or 0)
if not count or not (count < 9007199254740991) then
  return redis.error_reply('ERR the fencing counter is not a number below 2^53')
end
if count < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2]) end
return 1"
    };
}
pub(super) use confirm;
