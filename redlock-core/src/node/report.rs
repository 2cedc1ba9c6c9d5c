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
    /// The facts about the servers that an operator should know before a deployment. The connections read them. Empty without
    /// a connection.
    pub findings: Vec<Finding>,
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
    /// The timeout of this session, as the server has granted it.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "session_timeout_ms", serialize_with = "form::millis")
    )]
    pub session_timeout: Option<Duration>,
    /// The product, such as `Redis`, `Valkey` or `PostgreSQL`; `None` if the server does not report it.
    pub product: Option<&'static str>,
    /// The version of the product; `None` if the server does not report it.
    pub version: Option<String>,
    /// By how many milliseconds the wall clock of the server is ahead of that of this process, and negative if it is behind;
    /// `None` if the server does not report its time. The error is half of the round trip. No lock depends on it.
    pub clock_offset_ms: Option<i64>,
}

/// A fact about a server that its operator should know before a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The kind, as a stable word such as `eviction`.
    pub kind: &'static str,
    /// The effect on the locks.
    pub effect: Effect,
    /// Host and port of the server, or the path of a socket.
    pub server: String,
    /// The fact and the remedy, for people.
    pub text: String,
}

/// The effect of a [`Finding`] on the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Effect {
    /// It may cost a guarantee of the locks, or keep locks from being released.
    Guarantee,
    /// The server denies the fact. The text says what is not known.
    Unknown,
    /// It costs time or a convenience.
    Convenience,
}

impl NodeReport {
    /// Creates the description of a node of this kind.
    pub const fn new(kind: &'static str) -> Self {
        Self { kind, quarantine: None, round_trip: None, servers: Vec::new(), findings: Vec::new() }
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

impl Finding {
    /// Creates a finding.
    pub fn new(
        kind: &'static str,
        effect: Effect,
        server: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self { kind, effect, server: server.into(), text: text.into() }
    }
}

#[cfg(feature = "serde")]
mod form {
    use std::time::Duration;

    use serde::ser::Serializer;

    #[allow(clippy::ref_option, reason = "serde gives references")]
    pub(super) fn millis<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.serialize_some(&u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            None => to.serialize_none(),
        }
    }
}
