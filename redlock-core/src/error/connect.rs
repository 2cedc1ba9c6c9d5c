//! The error of creating a manager.

use std::sync::Arc;

use super::{InvalidOption, NodeError, Vote, Votes};

/// The error of creating a [`LockManager`](crate::LockManager).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No node was configured.
    #[cfg_attr(
        feature = "redis",
        error(
            "no node is configured; give at least one URL, such as redis://127.0.0.1:6379, or set the environment variable that ends in _URLS"
        )
    )]
    #[cfg_attr(not(feature = "redis"), error("no node is configured"))]
    NoNodes,
    /// A URL is invalid. The message does not repeat the URL, because it may contain a password.
    #[error("the URL of node {position} is invalid: {reason}")]
    #[non_exhaustive]
    InvalidUrl {
        /// The position of the URL among the nodes, counted from 1.
        position: usize,
        /// The mistake in the URL, and the allowed form.
        reason: String,
    },
    /// Two of the configured nodes are the same server, so its vote would count twice.
    #[error("{first} and {second} are the same server; each node must be an independent Redis")]
    #[non_exhaustive]
    SameServer {
        /// The name of the earlier node.
        first: Arc<str>,
        /// The name of the later node.
        second: Arc<str>,
    },
    /// Fewer nodes than a quorum could be connected to. The message has the reason of each node, and asks
    /// whether Redis runs at the nodes that were not reached.
    #[error("connected to only {connected} of {} nodes, {quorum} are needed; {votes}{}", .votes.len(), question(.votes))]
    #[non_exhaustive]
    Unavailable {
        /// The number of nodes with a connection.
        connected: usize,
        /// The number of nodes in a quorum.
        quorum: usize,
        /// The failure of each node. A connected node has the vote [`Granted`](crate::Vote::Granted).
        votes: Votes,
    },
    /// An option is out of its range.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
}

impl ConnectError {
    /// Creates an [`InvalidUrl`](Self::InvalidUrl) error, for tests of code that handles a `ConnectError`.
    pub fn invalid_url(position: usize, reason: impl Into<String>) -> Self {
        Self::InvalidUrl { position, reason: reason.into() }
    }

    /// Creates a [`SameServer`](Self::SameServer) error, for tests of code that handles a `ConnectError`.
    pub fn same_server(first: impl Into<Arc<str>>, second: impl Into<Arc<str>>) -> Self {
        Self::SameServer { first: first.into(), second: second.into() }
    }

    /// Creates an [`Unavailable`](Self::Unavailable) error, for tests of code that handles a `ConnectError`.
    pub fn unavailable(connected: usize, quorum: usize, votes: Votes) -> Self {
        Self::Unavailable { connected, quorum, votes }
    }
}

/// Returns the end of the message about nodes that were not reached. A server that has refused the client,
/// because of a wrong password for instance, was reached.
fn question(votes: &Votes) -> String {
    let is_unreached =
        |vote: Option<&Vote>| matches!(vote, Some(Vote::Failed(NodeError::NotConnected(_))));
    let unreached = votes.iter().filter(|(_, vote)| is_unreached(*vote));
    let names: Vec<_> = unreached.map(|(name, _)| name).collect();
    // Without the feature there are custom nodes only.
    if names.is_empty() || cfg!(not(feature = "redis")) {
        return String::new();
    }
    format!("; is Redis running at {}?", names.join(", "))
}
