//! Nodes whose wall clocks are stepped.
//!
//! A server ends a lease when its wall clock says so. The clock of this machine cannot be stepped for
//! one server alone: what the server tells of it is stepped on the way, and its leases are moved.

use std::time::Duration;

use crate::redis_server::RedisServer;

/// How far a clock is set forward: beyond the end of every lease.
pub(super) const FORWARD: Duration = Duration::from_secs(60);
/// How far it is set back.
pub(super) const BACK: Duration = Duration::from_secs(1);

const MOVE: &str = "
    for _, key in ipairs(redis.call('KEYS', '*')) do
        local left = redis.call('PTTL', key)
        if left > 0 then
            left = left + tonumber(ARGV[1])
            if left > 0 then redis.call('PEXPIRE', key, left) else redis.call('DEL', key) end
        end
    end";

/// Lets all leases of a server end so much earlier.
pub(super) async fn shorten_leases(server: &RedisServer, by: Duration) {
    server.probe().await.command::<()>(["EVAL", MOVE, "0", &format!("-{}", by.as_millis())]).await;
}

/// Lets all leases of a server end so much later.
pub(super) async fn lengthen_leases(server: &RedisServer, by: Duration) {
    server.probe().await.command::<()>(["EVAL", MOVE, "0", &by.as_millis().to_string()]).await;
}
