//! Recognizes promoted masters.
//!
//! A replica that becomes a master may lack the last writes of the former master, and the former master may grant
//! locks until it notices its isolation. So a promotion counts as a restart, with the failover margin added.
//!
//! A server reports no time of its promotion. It reports two replication IDs (`INFO replication`): its own, which is
//! new after each promotion, and that of its former master, which is zero on a server that was never a replica. So a
//! promotion counts from the first time at which this node met the master with its own ID. That is later than the
//! promotion, so that the quarantine never ends too early. A node that connects after a failover cannot know when the
//! promotion was, and waits for the whole quarantine too.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bb8_redis::redis::{Cmd, Value};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::NodeError;
use crate::log_limit::LogLimit;
use crate::node::redis::connection::Connection;
use crate::node::redis::delayed_restart::quarantine::Quarantine;
use crate::node::redis::error::node_error;
use crate::telemetry;

/// The failover margin if neither the manager nor the servers set one: the default `cluster-node-timeout` of Redis,
/// and a second.
const DEFAULT_MARGIN: Duration = Duration::from_secs(16);
/// What is added to the `cluster-node-timeout` of the servers.
const MARGIN_BEYOND_TIMEOUT: Duration = Duration::from_secs(1);

/// What the masters of one cluster share.
pub(crate) struct Membership {
    name: Arc<str>,
    failover_margin: Option<Duration>,
    /// The replication IDs of promoted masters, and when this node met them first.
    promoted: Mutex<HashMap<String, Instant>>,
    /// Whether the node was up before.
    has_started: AtomicBool,
}

/// The state of a server in the replication.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Replication {
    is_replica: bool,
    /// The ID of a master that was promoted.
    promoted: Option<String>,
}

impl Membership {
    pub(crate) fn new(name: Arc<str>, failover_margin: Option<Duration>) -> Arc<Self> {
        let (promoted, has_started) = Default::default();
        Arc::new(Self { name, failover_margin, promoted, has_started })
    }

    /// Returns the name of the cluster.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Records that the node is up for the first time. From now on it notices failovers.
    pub(super) fn record_start(&self) {
        self.has_started.store(true, Ordering::Release);
    }

    /// Checks a new connection to a master, before the node sends operations over it. Quarantines a promoted master
    /// with the restart guard, and warns about it otherwise.
    pub(in crate::node::redis) async fn admit(
        &self,
        connection: &Connection,
        server: &Arc<str>,
        restart_guard: Option<Duration>,
        log_limit: &LogLimit,
    ) -> Result<(), NodeError> {
        let replication = match connection.send_boxed(&words(&["INFO", "replication"])).await {
            Ok(reply) => Some(Replication::read(&text(&reply))),
            Err(error) => match node_error(&error) {
                broke @ (NodeError::ConnectionBroke(_) | NodeError::NoReply(_)) => {
                    return Err(broke);
                }
                _ => None,
            },
        };
        if replication.as_ref().is_some_and(|replication| replication.is_replica) {
            return Err(NodeError::NotConnected("the server is a replica".into()));
        }
        // A connection belongs to one master, as long as the server does not tell.
        let (since, is_new) = match replication.map(|replication| replication.promoted) {
            Some(None) => return Ok(()),
            Some(Some(id)) => self.first_met(id),
            None => (Instant::now(), false),
        };
        let has_started = self.has_started.load(Ordering::Acquire);
        if is_new && has_started {
            telemetry::promoted(server);
        }
        let Some(longest_lease) = restart_guard else {
            if is_new
                && has_started
                && let Some(suppressed) = log_limit.admit("promotion", server)
            {
                tracing::warn!(
                    node = %self.name, %server, suppressed,
                    "a replica was promoted to master and may not know held locks; set restart_guard"
                );
            }
            return Ok(());
        };
        let margin = match self.failover_margin {
            Some(margin) => margin,
            None => margin_of(connection).await,
        };
        let quarantine = Quarantine::after_promotion(longest_lease, margin, since);
        if let Err(reason) = quarantine.check()
            && let Some(suppressed) = log_limit.admit("promotion", server)
        {
            tracing::warn!(
                node = %self.name, %server, %reason, suppressed,
                "a promoted master may not know held locks, and is quarantined"
            );
        }
        connection.start(quarantine);
        Ok(())
    }

    /// Ends the connection to a master that was demoted, or promoted again, since it was admitted. A new connection
    /// shows its state.
    pub(super) async fn check_again(&self, connection: &Connection) {
        let Ok(reply) = connection.send_boxed(&words(&["INFO", "replication"])).await else {
            return;
        };
        let Replication { is_replica, promoted } = Replication::read(&text(&reply));
        if is_replica {
            connection.end("the server has become a replica");
        } else if promoted.is_some_and(|id| !self.promoted.lock().contains_key(&id)) {
            connection.end("the server was promoted to master");
        }
    }

    /// Returns when this node met a promoted master for the first time, and whether that is now.
    fn first_met(&self, id: String) -> (Instant, bool) {
        let now = Instant::now();
        let since = *self.promoted.lock().entry(id).or_insert(now);
        (since, since == now)
    }
}

impl Replication {
    fn read(info: &str) -> Self {
        let value = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let was_replica =
            value("master_replid2").is_some_and(|id| id.contains(|digit| digit != '0'));
        let promoted = value("master_replid").filter(|_| was_replica).map(str::to_owned);
        Self { is_replica: value("role") == Some("slave"), promoted }
    }
}

/// Returns the time during which a former master may grant locks, by the setting of the servers.
async fn margin_of(connection: &Connection) -> Duration {
    let command = words(&["CONFIG", "GET", "cluster-node-timeout"]);
    let millis = match connection.send_boxed(&command).await {
        Ok(Value::Map(pairs)) => pairs.first().and_then(|(_, value)| text(value).parse().ok()),
        Ok(Value::Array(pair)) => pair.get(1).and_then(|value| text(value).parse().ok()),
        _ => None,
    };
    millis.map_or(DEFAULT_MARGIN, |millis| Duration::from_millis(millis) + MARGIN_BEYOND_TIMEOUT)
}

fn words(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: &str = "0000000000000000000000000000000000000000";

    #[test]
    fn a_master_that_was_a_replica_is_promoted() {
        let info = |role: &str, before: &str| {
            format!(
                "# Replication\r\nrole:{role}\r\nmaster_replid:aa\r\nmaster_replid2:{before}\r\n"
            )
        };
        let read = |role, before| Replication::read(&info(role, before));
        assert_eq!(read("master", NEVER), Replication::default());
        let promoted = Replication { is_replica: false, promoted: Some("aa".to_owned()) };
        assert_eq!(read("master", "bb"), promoted);
        assert!(read("slave", NEVER).is_replica);
    }

    #[tokio::test(start_paused = true)]
    async fn a_promotion_counts_from_the_first_meeting() {
        let membership = Membership::new("cluster".into(), None);
        let first = membership.first_met("aa".to_owned());
        assert!(first.1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(membership.first_met("aa".to_owned()), (first.0, false));
        assert!(membership.first_met("bb".to_owned()).0 > first.0);
    }
}
