//! What a server reports about its replication.

use std::time::Duration;

use bb8_redis::redis::{Cmd, FromRedisValue, RedisError};

use super::refusable::{none_if_refused, text};
use crate::node::redis::link::Link;

/// What a server reports about its replication.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Replication {
    pub(crate) is_replica: bool,
    /// The ID of the data set. It changes when the server becomes a replica, and when it becomes a master.
    pub(crate) id: Option<String>,
    /// Whether the server refuses writes without replicas (`min-replicas-to-write`).
    pub(crate) needs_replicas: bool,
    /// How long the server accepts writes after it was cut off, see [`LagSetting`].
    pub(crate) max_lag: Option<Duration>,
    /// Whether the server was a replica before, so that it was promoted to master.
    pub(crate) was_replica: bool,
}

/// The setting of a server that limits how long it accepts writes after it was cut off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LagSetting {
    name: &'static str,
    unit: Duration,
}

impl LagSetting {
    /// The time since a master has last heard of its replicas.
    pub(crate) const REPLICAS: Self =
        Self { name: "min-replicas-max-lag", unit: Duration::from_secs(1) };
    /// The time since a master of a cluster has last heard of the other masters.
    pub(crate) const CLUSTER: Self =
        Self { name: "cluster-node-timeout", unit: Duration::from_millis(1) };
}

/// Asks a server for its replication. Returns `None` if it refuses that.
pub(super) async fn read(
    link: &Link,
    lag: Option<LagSetting>,
) -> Result<Option<Replication>, RedisError> {
    let mut info = Cmd::new();
    info.arg("INFO").arg("replication");
    let Some(info) = none_if_refused(text(link, &info).await)? else { return Ok(None) };
    let mut replication = Replication::of(&info);
    if let Some(LagSetting { name, unit }) = lag {
        let mut lag = Cmd::new();
        lag.arg("CONFIG").arg("GET").arg(name);
        let reply = link.send(&lag).await.and_then(|reply| {
            let pairs: Vec<(String, u32)> = Vec::from_redis_value(reply)?;
            Ok(pairs.first().map(|(_, count)| unit * *count))
        });
        replication.max_lag = none_if_refused(reply)?.flatten();
    }
    Ok(Some(replication))
}

impl Replication {
    pub(crate) fn of(info: &str) -> Self {
        let mut replication = Self::default();
        for line in info.lines() {
            match line.split_once(':') {
                Some(("role", role)) => replication.is_replica = role.trim() != "master",
                Some(("master_replid", id)) => replication.id = Some(id.trim().to_owned()),
                // Zeros on a server that was never a replica.
                Some(("master_replid2", id)) => {
                    replication.was_replica = id.trim().contains(|digit| digit != '0');
                }
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
        let info =
            |former| format!("role:master\r\nmaster_replid:abc\r\nmaster_replid2:{former}\r\n");
        assert!(Replication::of(&info("def0")).was_replica);
        assert!(!Replication::of(&info("0000")).was_replica);
    }
}
