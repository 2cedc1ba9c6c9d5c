//! Steps of the wall clock of one node.
//!
//! A server ends a lease by its wall clock. A test cannot step the machine's clock for one server alone.
//! Instead, the network changes the server's replies to `TIME`, and the functions here move the ends of its
//! leases.

use std::time::Duration;

use crate::redis_server::RedisServer;

/// A step forward: beyond the end of every lease.
pub(super) const FORWARD: Duration = Duration::from_secs(60);
/// A step back.
pub(super) const BACK: Duration = Duration::from_secs(1);

const MOVE: &str = "
    for _, key in ipairs(redis.call('KEYS', '*')) do
        local left = redis.call('PTTL', key)
        if left > 0 then
            left = left + tonumber(ARGV[1])
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
