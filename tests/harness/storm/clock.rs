//! Steps of the wall clock of one node.
//!
//! A server ends a lease by its wall clock. A test cannot step the machine's clock for one server alone.
//! Instead, the network changes the server's replies to `TIME`, and the functions here move the ends of its
//! leases.

use std::time::Duration;

use crate::redis_server::RedisServer;

/// A step in either direction: beyond the end of every lease.
pub(super) const STEP: Duration = Duration::from_secs(600);

// The scores of a shared lock are the times of its entries in milliseconds, those of a fair queue in microseconds. The
// times of marks, turns and presences are negative.
const MOVE: &str = "
    local by = tonumber(ARGV[1])
    for _, key in ipairs(redis.call('KEYS', '*')) do
        local left = redis.call('PTTL', key)
        if left > 0 and redis.call('TYPE', key).ok == 'zset' then
            local unit = redis.call('ZSCORE', key, 'shared') and 1 or 1000
            local entries = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
            for index = 1, #entries, 2 do
                local time = tonumber(entries[index + 1])
                local moved = time > 0 and time + by * unit or time < 0 and time - by * unit or 0
                redis.call('ZADD', key, string.format('%.0f', moved), entries[index])
            end
        end
        if left > 0 then
            left = left + by
            if left > 0 then redis.call('PEXPIRE', key, left) else redis.call('DEL', key) end
        end
    end";

/// Moves the ends of all leases of a server earlier.
pub(super) async fn shorten_leases(server: &RedisServer, by: Duration) {
    server.probe().await.command::<()>(["EVAL", MOVE, "0", &format!("-{}", by.as_millis())]).await;
}

/// Moves the ends of all leases of a server later.
pub(super) async fn lengthen_leases(server: &RedisServer, by: Duration) {
    server.probe().await.command::<()>(["EVAL", MOVE, "0", &by.as_millis().to_string()]).await;
}
