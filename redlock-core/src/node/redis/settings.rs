//! The settings that all servers of a manager share.

use std::sync::Arc;
use std::time::Duration;

use super::ServerRegistry;
use crate::clock::Clock;

/// The settings of a [`RedisNode`](super::RedisNode).
#[derive(Clone)]
pub(crate) struct NodeSettings {
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// The time for which the server must have been running, without a forward step of its wall clock,
    /// before it grants locks.
    pub(crate) restart_guard: Option<Duration>,
    /// How long a former master may grant locks after the promotion of another server. `None` if the servers decide.
    pub(crate) failover_margin: Option<Duration>,
    /// The clock that measures leases.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) servers: Arc<ServerRegistry>,
    /// Whether the manager has no other server.
    pub(crate) is_only_server: bool,
}

#[cfg(test)]
impl NodeSettings {
    /// Returns settings without a restart guard.
    pub(crate) fn for_tests(node_timeout: Duration, connect_timeout: Duration) -> Self {
        Self {
            node_timeout,
            connect_timeout,
            restart_guard: None,
            failover_margin: None,
            clock: Arc::new(crate::clock::fake::RuntimeClock::new()),
            servers: Arc::default(),
            is_only_server: true,
        }
    }
}
