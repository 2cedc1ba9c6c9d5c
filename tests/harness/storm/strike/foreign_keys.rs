//! Keys that have the names of locks but are not locks.

use crate::redis_server::RedisServer;
use crate::storm::CONTENDED_KEYS;

const PUT: &str = "
    if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
    if ARGV[2] == '0' then redis.call('SET', KEYS[1], ARGV[1])
    elseif ARGV[2] == '1' then redis.call('RPUSH', KEYS[1], ARGV[1])
    else redis.call('SET', KEYS[1], ARGV[1], 'PX', 691200000) end
    return 1";

const REMOVE: &str = "
    local kind, there = redis.call('TYPE', KEYS[1]).ok, false
    if kind == 'string' then there = redis.call('GET', KEYS[1])
    elseif kind == 'list' then there = redis.call('LINDEX', KEYS[1], 0) end
    if not there or string.sub(there, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
    return redis.call('DEL', KEYS[1])";

/// The prefix of the value of every foreign key.
const MARK: &str = "foreign:";

/// The foreign keys on one node.
#[derive(Debug)]
pub(super) struct ForeignKeys {
    value: String,
    keys: Vec<String>,
}

impl ForeignKeys {
    /// Creates a foreign key at each lock name without a key. In turn, a key has no time to live,
    /// another type, or a time to live longer than any lease.
    pub(super) async fn put(server: &RedisServer, choice: u64) -> Self {
        let mut probe = server.probe().await;
        let value = format!("{MARK}{choice}");
        let mut keys = Vec::new();
        for number in 0..CONTENDED_KEYS {
            let key = format!("hot:{number}");
            let kind = (choice % 3 + u64::from(number)) % 3;
            let put = ["EVAL", PUT, "1", &key, &value, &kind.to_string()];
            if probe.command::<i64>(put).await == 1 {
                keys.push(key);
            }
        }
        Self { value, keys }
    }

    /// Removes the foreign keys, and returns a violation for each key that a client has removed or changed.
    pub(super) async fn remove(self, server: &RedisServer) -> Vec<String> {
        let mut probe = server.probe().await;
        let mut violations = Vec::new();
        for key in &self.keys {
            let removed: i64 = probe.command(["EVAL", REMOVE, "1", key, &self.value]).await;
            if removed == 0 {
                let port = server.port();
                violations.push(format!("a foreign key was removed or changed on {port}: {key}"));
            }
        }
        violations
    }

    /// Removes foreign keys that exist again after a restart, because the server has lost their removal.
    pub(super) async fn remove_returned(server: &RedisServer) {
        let mut probe = server.probe().await;
        for number in 0..CONTENDED_KEYS {
            let key = format!("hot:{number}");
            probe.command::<i64>(["EVAL", REMOVE, "1", &key, MARK]).await;
        }
    }
}
