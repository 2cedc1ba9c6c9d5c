//! The settings that all servers of a node share.

use std::sync::Arc;
use std::time::Duration;

use super::rights::CheckedLocks;
use crate::log_limit::LogLimit;
use crate::node::NodeSettings;
use crate::store::kit::registry::ServerRegistry;

/// The settings that all servers of a node share.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    /// The name of the node.
    pub(crate) voter: Arc<str>,
    pub(crate) node: NodeSettings,
    pub(crate) log_limit: LogLimit,
    pub(crate) registry: Arc<ServerRegistry>,
    /// The locks of the manager.
    pub(crate) locks: CheckedLocks,
    /// The time between two readings of the slots of a cluster, and between two checks of the role of a master.
    pub(crate) refresh: Duration,
    /// Whether a connection reads the replies to several commands in slices.
    pub(crate) in_slices: bool,
}

#[cfg(test)]
impl ServerSettings {
    pub(crate) fn for_tests(node: NodeSettings) -> Self {
        Self {
            voter: "node".into(),
            log_limit: LogLimit::new(Arc::clone(&node.clock)),
            node,
            registry: Arc::default(),
            locks: CheckedLocks::default(),
            refresh: Duration::from_secs(30),
            in_slices: true,
        }
    }
}
