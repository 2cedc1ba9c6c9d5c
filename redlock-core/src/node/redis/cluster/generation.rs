//! Recognizes promoted masters.
//!
//! A replica that becomes a master may lack the last writes of the former master, and the former master may grant
//! locks until it notices its isolation. So a promotion counts as a restart, with the failover margin added.
//!
//! A server reports no time of its promotion. It reports two replication IDs (`INFO replication`): its own, which is
//! new after each promotion, and that of its former master, which is zero on a server that was never a replica. So the
//! quarantine begins when this node first connects to a master with a replication ID that it has not met. That is later
//! than the promotion, so that the quarantine never ends too early. A node that connects after a failover cannot know
//! when the promotion was, and waits for the whole quarantine too.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bb8_redis::redis::{Cmd, Value};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::NodeError;
use crate::node::redis::RedisNode;
use crate::node::redis::connection::replication::Replication;
use crate::node::redis::connection::{Connection, Identity};
use crate::telemetry;

/// The time after which a master that is cut off refuses writes, if the server does not report it: the default
/// `cluster-node-timeout`.
const DEFAULT_NODE_TIMEOUT: Duration = Duration::from_secs(15);
/// How much longer than its `cluster-node-timeout` a server may accept writes.
const NODE_TIMEOUT_ROUNDING: Duration = Duration::from_secs(1);

/// The state that the masters of one cluster share: the promotions that the node has seen.
pub(crate) struct ClusterMembership {
    name: Arc<str>,
    /// The replication IDs of promoted masters, and when this node met them first.
    promoted: Mutex<HashMap<String, Instant>>,
    /// Whether the node was up before.
    has_started: AtomicBool,
    /// The longest margin of the masters.
    longest_margin: Mutex<Option<Duration>>,
}

impl ClusterMembership {
    pub(super) fn new(name: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            name,
            promoted: Mutex::default(),
            has_started: AtomicBool::new(false),
            longest_margin: Mutex::default(),
        })
    }

    /// Returns the name of the cluster.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Records that the node is up for the first time. From now on it notices failovers.
    pub(super) fn record_start(&self) {
        self.has_started.store(true, Ordering::Release);
    }

    /// Checks a new connection to a master. Counts a promotion, and warns about it without a restart guard.
    pub(in crate::node::redis) fn check(
        &self,
        node: &RedisNode,
        connection: &Connection,
    ) -> Result<(), NodeError> {
        let mut longest_margin = self.longest_margin.lock();
        *longest_margin = (*longest_margin).max(Some(Self::margin(&connection.identity)));
        drop(longest_margin);
        let Some(replication) = &connection.identity.replication else { return Ok(()) };
        if replication.is_replica {
            return Err(NodeError::Server("the server is a replica".into()));
        }
        let is_new = promoted_id(replication).is_some_and(|id| self.meet(id).1);
        if !is_new || !self.has_started.load(Ordering::Acquire) {
            return Ok(());
        }
        let server = node.route.name();
        telemetry::promoted(&self.name);
        if node.settings.restart_guard.is_none()
            && let Some(suppressed) = node.log_limit.admit("promotion", server)
        {
            tracing::warn!(
                node = %self.name, %server, suppressed,
                "a replica was promoted to master, and may not know all locks that are held; set restart_guard"
            );
        }
        Ok(())
    }

    /// Returns the time at which a master was promoted, or a later one. `None` if it was never a replica. A server that
    /// does not report its replication counts as promoted when its connection was made.
    pub(in crate::node::redis) fn promoted_since(&self, identity: &Identity) -> Option<Instant> {
        match &identity.replication {
            Some(replication) => promoted_id(replication).map(|id| self.meet(id).0),
            None => Some(Instant::now()),
        }
    }

    /// Returns the time during which a former master may grant locks, by the setting of a server.
    pub(in crate::node::redis) fn margin(identity: &Identity) -> Duration {
        let timeout = identity.replication.as_ref().and_then(|replication| replication.max_lag);
        timeout.unwrap_or(DEFAULT_NODE_TIMEOUT) + NODE_TIMEOUT_ROUNDING
    }

    /// Returns the time during which a former master may grant locks, if nothing is known about that master.
    pub(super) fn longest_margin(&self) -> Duration {
        self.longest_margin.lock().unwrap_or_else(|| Self::margin(&Identity::default()))
    }

    /// Ends the connection to a master that was demoted, or promoted again, since its connection was made. A new
    /// connection shows its state.
    pub(super) async fn check_again(&self, connection: &Connection) {
        let mut command = Cmd::new();
        command.arg("INFO").arg("replication");
        let Ok(reply) = connection.send(&command).await else { return };
        let replication = match &reply {
            Value::BulkString(bytes) => Replication::of(&String::from_utf8_lossy(bytes)),
            Value::VerbatimString { text, .. } | Value::SimpleString(text) => Replication::of(text),
            _ => return,
        };
        if replication.is_replica {
            connection.link.end("the server has become a replica");
        } else if let Some(id) = promoted_id(&replication)
            && !self.promoted.lock().contains_key(id)
        {
            connection.link.end("the server was promoted to master");
        }
    }

    /// Returns when this node met a promoted master for the first time, and whether that is now.
    fn meet(&self, id: &str) -> (Instant, bool) {
        let mut promoted = self.promoted.lock();
        if let Some(since) = promoted.get(id) {
            return (*since, false);
        }
        let now = Instant::now();
        promoted.insert(id.to_owned(), now);
        (now, true)
    }
}

/// Returns the replication ID of a master that was promoted.
fn promoted_id(replication: &Replication) -> Option<&str> {
    replication.id.as_deref().filter(|_| replication.was_replica)
}

impl fmt::Debug for ClusterMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterMembership").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_promotion_counts_from_the_first_meeting() {
        let membership = ClusterMembership::new("cluster".into());
        let master = |id: &str, was_replica| Identity {
            replication: Some(Replication {
                id: Some(id.to_owned()),
                was_replica,
                ..Replication::default()
            }),
            ..Identity::default()
        };
        assert_eq!(membership.promoted_since(&master("aa", false)), None);
        let first = membership.promoted_since(&master("aa", true)).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(membership.promoted_since(&master("aa", true)), Some(first));
        assert_eq!(membership.promoted_since(&master("bb", true)), Some(Instant::now()));
        assert_eq!(membership.promoted_since(&Identity::default()), Some(Instant::now()));
        assert_eq!(ClusterMembership::margin(&Identity::default()), Duration::from_secs(16));
    }
}
