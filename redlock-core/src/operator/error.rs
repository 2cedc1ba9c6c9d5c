//! The errors of a status and of a break.

use std::fmt;
use std::sync::Arc;

use super::Closed;
use crate::error::{InvalidOption, Votes, with_key_and_votes};
use crate::key::{KeyError, LockKey};

/// The error of [`LockManager::status`](crate::LockManager::status).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// The key is invalid. No node was asked.
    #[error("invalid lock key: {0}")]
    InvalidKey(#[from] KeyError),
    /// Fewer nodes than a quorum have answered. [`diagnostics`](Self::diagnostics) has the reason of each.
    #[error("no quorum of nodes answered")]
    #[non_exhaustive]
    Unavailable {
        /// The key of the lock.
        key: LockKey,
        /// The failure of each node. A node that has answered has the vote [`Agreed`](crate::Vote::Agreed), and a node that
        /// offers no [inspection](crate::node::Inspection) has none.
        votes: Votes,
    },
    /// Too many nodes offer no [inspection](crate::node::Inspection): the others are no quorum.
    #[error("the node {node} offers no inspection, and the nodes that do are no quorum")]
    #[non_exhaustive]
    Unsupported {
        /// The name of the first such node.
        node: Arc<str>,
    },
    /// [`LockManager::shutdown`](crate::LockManager::shutdown) was called. No node was asked.
    #[error("the lock manager was shut down")]
    ShutDown,
    /// The [runtime](crate::LockManager#runtime) of the manager has ended. No node was asked.
    #[error("the Tokio runtime of the lock manager has ended; use one manager for each runtime")]
    RuntimeEnded,
}

/// The error of [`LockManager::break_lock`](crate::LockManager::break_lock).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BreakError {
    /// The holder does not have this lock, or has it no longer. Nothing was changed on the nodes.
    #[error("the holder does not have the lock, or no longer")]
    #[non_exhaustive]
    NotHeld {
        /// The key of the lock.
        key: LockKey,
    },
    /// As [`StatusError::InvalidKey`].
    #[error("invalid lock key: {0}")]
    InvalidKey(#[from] KeyError),
    /// The [reason](crate::BreakRequest::reason) is out of its range. No node was asked.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
    /// The holder may still have a quorum of nodes: too few nodes have answered. The holder was removed from the nodes with the
    /// vote [`Agreed`](crate::Vote::Agreed), and may set its lock there again at its next renewal. A node that is only late, such as a
    /// frozen server, may still execute the removal afterwards: the break may then take effect. Ask for the
    /// [status](crate::LockManager::status) again.
    #[error("too few nodes answered, so that the holder may still have the lock")]
    #[non_exhaustive]
    Unavailable {
        /// The key of the lock.
        key: LockKey,
        /// The vote of each node.
        votes: Votes,
    },
    /// As [`StatusError::Unsupported`].
    #[error("the node {node} offers no inspection, and the nodes that do are no quorum")]
    #[non_exhaustive]
    Unsupported {
        /// The name of the first such node.
        node: Arc<str>,
    },
    /// As [`StatusError::ShutDown`].
    #[error("the lock manager was shut down")]
    ShutDown,
    /// As [`StatusError::RuntimeEnded`].
    #[error("the Tokio runtime of the lock manager has ended; use one manager for each runtime")]
    RuntimeEnded,
}

/// Writes what both errors have in common.
macro_rules! common {
    ($($error:ident: $($with_key:pat_param)|+ => $key:ident;)+) => {$(
        impl From<Closed> for $error {
            fn from(closed: Closed) -> Self {
                match closed {
                    Closed::ShutDown => Self::ShutDown,
                    Closed::RuntimeEnded => Self::RuntimeEnded,
                }
            }
        }

        impl $error {
            /// Returns the key of the lock; `None` if no node was asked.
            pub fn key(&self) -> Option<&LockKey> {
                match self {
                    $($with_key)|+ => Some($key),
                    _ => None,
                }
            }

            /// Returns the error for logs and operators: the message, followed by the key of the lock and the vote of each node.
            /// `Display` contains neither.
            pub fn diagnostics(&self) -> impl fmt::Display {
                with_key_and_votes(self, self.key(), self.votes())
            }

            /// Returns the vote of each node; `None` if no node was asked.
            pub fn votes(&self) -> Option<&Votes> {
                match self {
                    Self::Unavailable { votes, .. } => Some(votes),
                    _ => None,
                }
            }
        }
    )+};
}

common! {
    StatusError: Self::Unavailable { key, .. } => key;
    BreakError: Self::Unavailable { key, .. } | Self::NotHeld { key } => key;
}
