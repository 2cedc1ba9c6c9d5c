//! What a server reports about its replication.

use std::time::Duration;

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{Cmd, FromRedisValue, RedisError};

use super::refusable::{none_if_refused, text};

/// What a server reports about its replication.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Replication {
    pub(crate) is_replica: bool,
    /// The ID of the data set. It changes when the server becomes a replica, and when it becomes a master.
    pub(crate) id: Option<String>,
    /// Whether the server refuses writes without replicas (`min-replicas-to-write`).
    pub(crate) needs_replicas: bool,
    /// How long the server accepts writes after it has last heard of its replicas (`min-replicas-max-lag`).
    pub(crate) max_lag: Option<Duration>,
}

/// Asks a server for its replication. Returns `None` if it refuses that.
pub(super) async fn read(
    handle: &mut MultiplexedConnection,
    reads_max_lag: bool,
) -> Result<Option<Replication>, RedisError> {
    let mut info = Cmd::new();
    info.arg("INFO").arg("replication");
    let Some(info) = none_if_refused(text(handle, &info).await)? else { return Ok(None) };
    let mut replication = Replication::of(&info);
    if reads_max_lag {
        let mut lag = Cmd::new();
        lag.arg("CONFIG").arg("GET").arg("min-replicas-max-lag");
        let reply = handle.send_packed_command(&lag).await.and_then(|reply| {
            let pairs: Vec<(String, u64)> = Vec::from_redis_value(reply.extract_error()?)?;
            Ok(pairs.first().map(|(_, seconds)| Duration::from_secs(*seconds)))
        });
        replication.max_lag = none_if_refused(reply)?.flatten();
    }
    Ok(Some(replication))
}

impl Replication {
    fn of(info: &str) -> Self {
        let mut replication = Self::default();
        for line in info.lines() {
            match line.split_once(':') {
                Some(("role", role)) => replication.is_replica = role.trim() != "master",
                Some(("master_replid", id)) => replication.id = Some(id.trim().to_owned()),
                // Only a server that needs replicas counts them.
                Some(("min_slaves_good_slaves", _)) => replication.needs_replicas = true,
                _ => {}
            }
        }
        replication
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replication_is_read_from_info() {
        let master =
            "# Replication\r\nrole:master\r\nmin_slaves_good_slaves:1\r\nmaster_replid:abc\r\n";
        let master = Replication::of(master);
        assert!(!master.is_replica && master.needs_replicas);
        assert_eq!(master.id.as_deref(), Some("abc"));
        let replica = Replication::of("# Replication\r\nrole:slave\r\nmaster_replid:abc\r\n");
        assert!(replica.is_replica && !replica.needs_replicas);
    }
}
