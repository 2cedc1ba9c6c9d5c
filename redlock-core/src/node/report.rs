//! The description of a node.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::NodeError;

/// The description of a node in a [snapshot](crate::LockManager::snapshot). A node describes its
/// present state, and sends nothing to its store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The kind of the store: `redis`, `postgres`, `zookeeper`, `memory`. `custom` by default.
    pub kind: &'static str,
    /// Why the votes of the node on new locks do not count although it is up, such as
    /// [`NodeError::Restarted`]; [`NodeError::votes_in`] is the time until they do. `None` if they count.
    pub quarantine: Option<NodeError>,
    /// The round trip of the last reading of the store's clock; `None` if there was none.
    pub round_trip: Option<Duration>,
    /// The servers behind the node, in the order of their addresses or slots. Empty if there are none, or if they are not known
    /// yet.
    pub servers: Vec<ServerReport>,
}

/// A server behind a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ServerReport {
    /// Host and port, or the path of a socket.
    pub address: String,
    /// Whether there is a connection to the server.
    pub is_connected: bool,
    /// The slots of a master of a Redis Cluster.
    pub slots: Vec<RangeInclusive<u16>>,
    /// The timeline of a PostgreSQL server.
    pub timeline: Option<i32>,
    /// The session at a ZooKeeper server, in the hexadecimal digits that ZooKeeper logs.
    pub session: Option<String>,
}

impl NodeReport {
    /// Creates the description of a node of this kind.
    pub const fn new(kind: &'static str) -> Self {
        Self { kind, quarantine: None, round_trip: None, servers: Vec::new() }
    }
}

impl Default for NodeReport {
    fn default() -> Self {
        Self::new("custom")
    }
}

impl ServerReport {
    /// Creates the description of a server.
    pub fn new(address: impl Into<String>, is_connected: bool) -> Self {
        Self { address: address.into(), is_connected, ..Self::default() }
    }
}
