//! Errors of making a manager.

use std::sync::Arc;

use super::{InvalidOption, Votes};

/// Why a [`LockManager`](crate::LockManager) could not be made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No node was configured.
    #[cfg_attr(
        feature = "redis",
        error("no node is configured; give at least one URL, such as redis://127.0.0.1:6379")
    )]
    #[cfg_attr(not(feature = "redis"), error("no node is configured"))]
    NoNodes,
    /// A URL cannot be used. The message does not repeat the URL, because it may hold a password.
    #[error("the URL of node {position} cannot be used: {reason}")]
    #[non_exhaustive]
    InvalidUrl {
        /// Which one, counted from 1.
        position: usize,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// Two of the configured nodes are the same server, so that its vote would count twice.
    #[error("{first} and {second} are the same server; each node must be an independent Redis")]
    #[non_exhaustive]
    SameServer {
        /// The node that came first.
        first: Arc<str>,
        /// The node that came later.
        second: Arc<str>,
    },
    /// Fewer nodes than a quorum could be connected to.
    #[error("only {connected} of {} nodes could be connected to, {quorum} are needed; {votes}", .votes.len())]
    #[non_exhaustive]
    Unavailable {
        /// How many could be.
        connected: usize,
        /// How many are needed.
        quorum: usize,
        /// What went wrong, node by node; a connected node counts as granted.
        votes: Votes,
    },
    /// An option is out of its range.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
}
