//! Errors of extending and releasing a lock that is held.

use super::{InvalidOption, LockError, Votes};
use crate::key::LockKey;

/// Why [`LockGuard::release`](crate::LockGuard::release) could not confirm that the lock was
/// released. In no case did it remove somebody else's lock.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was not held any more when the release arrived: its lease had run out, or a quorum
    /// of nodes had lost it. Somebody else may have held it since.
    #[error("the lock {key} had already expired when it was released; {votes}")]
    #[non_exhaustive]
    Expired {
        /// What was locked.
        key: LockKey,
        /// What each node said.
        votes: Votes,
    },
    /// No quorum of nodes confirmed the release in time. It goes on in the background; at the
    /// latest the lock frees itself when its lease runs out.
    #[error("no quorum of nodes confirmed the release of the lock {key} yet; {votes}")]
    #[non_exhaustive]
    Unavailable {
        /// What was locked.
        key: LockKey,
        /// What each node said.
        votes: Votes,
    },
}

impl ReleaseError {
    /// Creates an [`Expired`](Self::Expired) error, for tests of code that handles a `ReleaseError`.
    pub fn expired(key: LockKey, votes: Votes) -> Self {
        Self::Expired { key, votes }
    }

    /// Creates an [`Unavailable`](Self::Unavailable) error, for tests of code that handles a `ReleaseError`.
    pub fn unavailable(key: LockKey, votes: Votes) -> Self {
        Self::Unavailable { key, votes }
    }

    /// What each node said.
    pub fn votes(&self) -> &Votes {
        match self {
            Self::Expired { votes, .. } | Self::Unavailable { votes, .. } => votes,
        }
    }
}

/// Why a lease was not extended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lock is lost: its lease has run out, or a quorum of nodes says that somebody else holds
    /// it or nobody does. The guarded work must stop.
    #[error("the lock {key} is lost; {votes}")]
    #[non_exhaustive]
    Lost {
        /// What was locked.
        key: LockKey,
        /// What each node said; empty where the lease had run out before any was asked.
        votes: Votes,
    },
    /// No quorum of nodes confirmed the extension. The lock is still held for what
    /// [`LockGuard::remaining`](crate::LockGuard::remaining) says; trying again makes sense.
    #[error("no quorum of nodes confirmed the extension of the lock {key}; {votes}")]
    #[non_exhaustive]
    Unavailable {
        /// What is locked.
        key: LockKey,
        /// What each node said.
        votes: Votes,
    },
    /// The new lease is out of range. No node was asked.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
}

impl ExtendError {
    /// Creates a [`Lost`](Self::Lost) error, for tests of code that handles an `ExtendError`.
    pub fn lost(key: LockKey, votes: Votes) -> Self {
        Self::Lost { key, votes }
    }

    /// Creates an [`Unavailable`](Self::Unavailable) error, for tests of code that handles an `ExtendError`.
    pub fn unavailable(key: LockKey, votes: Votes) -> Self {
        Self::Unavailable { key, votes }
    }
}

/// The lock was lost while the work that it guards was running, and the work was stopped. It may have been
/// done in part.
///
/// No acquisition fails with this. It is the error of code that runs work under a lock, such as
/// `#[redis_lock(on_lost = abort)]` and `OnLost::Abort` of `redlock-axum`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lock {key} was lost, and the work under it was stopped")]
pub struct LostError {
    key: LockKey,
}

impl LostError {
    /// The work under the lock with this key was stopped.
    pub fn new(key: LockKey) -> Self {
        Self { key }
    }

    /// What was locked.
    pub fn key(&self) -> &LockKey {
        &self.key
    }
}

/// Why work under a lock was not done, or not to its end. There is no third way, so the enum is exhaustive.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RunError {
    /// The lock was not acquired, and the work was not begun.
    #[error(transparent)]
    Acquire(#[from] LockError),
    /// The lock was lost, and the work was stopped. It may have been done in part.
    #[error(transparent)]
    Lost(#[from] LostError),
}
