//! The settings that all servers of a node share.

use std::sync::Arc;
use std::time::Duration;

use super::registry::ServerRegistry;
use crate::clock::Clock;
use crate::node::NodeSettings;

/// The settings that all servers of a node share.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    /// The name of the node.
    pub(crate) voter: Arc<str>,
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// The time for which a server must have been running, without a forward step of its wall clock,
    /// before it grants locks.
    pub(crate) restart_guard: Option<Duration>,
    /// How long a former master may grant locks after the promotion of another server. `None` if the servers decide.
    pub(crate) failover_margin: Option<Duration>,
    /// The clock that measures leases.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) registry: Arc<ServerRegistry>,
    /// The time between two readings of the slots of a cluster, and between two checks of the role of a master.
    pub(crate) refresh: Duration,
    /// Whether a connection reads the replies to several commands in slices.
    pub(crate) in_slices: bool,
}

impl ServerSettings {
    pub(crate) fn new(
        settings: &NodeSettings,
        voter: Arc<str>,
        registry: Arc<ServerRegistry>,
        refresh: Duration,
        in_slices: bool,
    ) -> Self {
        let NodeSettings { node_timeout, connect_timeout, restart_guard, failover_margin, clock } =
            settings.clone();
        Self {
            voter,
            node_timeout,
            connect_timeout,
            restart_guard,
            failover_margin,
            clock,
            registry,
            refresh,
            in_slices,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(node_timeout: Duration) -> Self {
        let settings = NodeSettings::for_tests(node_timeout);
        Self::new(&settings, "node".into(), Arc::default(), Duration::from_secs(30), true)
    }
}
