//! The settings that a manager gives to its nodes.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;

/// The settings that a manager gives to each of its nodes, see [`Node::start`](super::Node::start).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeSettings {
    /// How long a caller waits for the node's reply, see
    /// [`LockManagerBuilder::node_timeout`](crate::LockManagerBuilder::node_timeout).
    pub node_timeout: Duration,
    /// How long one attempt to connect may take, see
    /// [`LockManagerBuilder::connect_timeout`](crate::LockManagerBuilder::connect_timeout).
    pub connect_timeout: Duration,
    /// How long the store must have been running before it grants locks, see
    /// [`LockManagerBuilder::restart_guard`](crate::LockManagerBuilder::restart_guard).
    pub restart_guard: Option<Duration>,
    /// How long a former primary server may grant locks after the promotion of another one, see
    /// [`LockManagerBuilder::failover_margin`](crate::LockManagerBuilder::failover_margin). `None` if the servers decide.
    pub failover_margin: Option<Duration>,
    /// The clock that measures leases: the clock of the system, which goes on while the machine is suspended, or the clock of
    /// a test. A node measures the time of its [`restart_guard`](Self::restart_guard) by it. `tokio::time::Instant` may
    /// stand still during a suspension, in which leases end.
    pub clock: Arc<dyn Clock>,
}

#[cfg(all(test, any(feature = "postgres", feature = "redis", feature = "zookeeper")))]
impl NodeSettings {
    /// Returns settings without a restart guard.
    pub(crate) fn for_tests(node_timeout: Duration) -> Self {
        Self {
            node_timeout,
            connect_timeout: Duration::from_secs(30),
            restart_guard: None,
            failover_margin: None,
            clock: Arc::new(crate::clock::fake::RuntimeClock::new()),
        }
    }
}
