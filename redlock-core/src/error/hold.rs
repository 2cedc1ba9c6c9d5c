//! The errors of extending and releasing a held lock, and of the work under it.

use super::{InvalidOption, LockError, LostError, Votes};
use crate::key::LockKey;
use crate::lock::OwnerLabel;

/// The error of [`LockGuard::release`](crate::LockGuard::release): the release was not confirmed. A
/// release never removes the lock of another holder.
///
/// The work is done when this error occurs. Most callers log the error, and keep the result of the work.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was no longer held when the release arrived: its lease had run out, or a quorum of nodes
    /// had lost it. Another holder may have had the lock since.
    #[error("the lock was lost before it was released: {}", .0.cause())]
    Lost(LostError),
    /// No quorum of nodes confirmed the release in time. The release continues in the background. At the
    /// latest, the lock is free when its lease runs out.
    #[error("no quorum of nodes has confirmed the release of the lock yet")]
    #[non_exhaustive]
    Unavailable {
        /// The key of the lock.
        key: LockKey,
        /// The vote of each node.
        votes: Votes,
    },
}

impl ReleaseError {
    /// Creates an [`Unavailable`](Self::Unavailable) error, for tests of code that handles a `ReleaseError`.
    pub fn unavailable(key: LockKey, votes: Votes) -> Self {
        Self::Unavailable { key, votes }
    }

    /// Returns the key of the lock.
    pub fn key(&self) -> &LockKey {
        match self {
            Self::Lost(lost) => lost.key(),
            Self::Unavailable { key, .. } => key,
        }
    }

    /// Returns the vote of each node. If the lock was lost, those of [`LostError::votes`].
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Lost(lost) => lost.votes(),
            Self::Unavailable { votes, .. } => Some(votes),
        }
    }
}

/// The error of [`LockHandle::extend`](crate::LockHandle::extend) and
/// [`LockGuard::downgrade`](crate::LockGuard::downgrade).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The lock is lost: its lease has run out, or a quorum of nodes reports that another holder has the
    /// lock or that it is free. The guarded work must stop.
    #[error(transparent)]
    Lost(#[from] LostError),
    /// No quorum of nodes confirmed the change in time. The lock stays valid for the time that
    /// [`LockHandle::remaining`](crate::LockHandle::remaining) returns, so a second call can succeed.
    #[error("no quorum of nodes confirmed the change of the lock")]
    #[non_exhaustive]
    Unavailable {
        /// The key of the lock.
        key: LockKey,
        /// The vote of each node.
        votes: Votes,
    },
    /// The new lease is out of range, or the lock cannot be shared. No node was asked.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
}

impl HoldError {
    /// Returns the key of the lock, or `None` if the option was invalid.
    pub fn key(&self) -> Option<&LockKey> {
        match self {
            Self::Lost(lost) => Some(lost.key()),
            Self::Unavailable { key, .. } => Some(key),
            Self::InvalidOption(_) => None,
        }
    }

    /// Returns the vote of each node, or `None` if no node was asked because of the option. If the lock was lost, those of
    /// [`LostError::votes`].
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Lost(lost) => lost.votes(),
            Self::Unavailable { votes, .. } => Some(votes),
            Self::InvalidOption(_) => None,
        }
    }

    /// Creates an [`Unavailable`](Self::Unavailable) error, for tests of code that handles a `HoldError`.
    pub fn unavailable(key: LockKey, votes: Votes) -> Self {
        Self::Unavailable { key, votes }
    }
}

/// The error of work under a lock, such as that of [`LockRequest::run`](crate::LockRequest::run): the work was
/// not begun, or was stopped. These are the only two cases, so the enum is exhaustive.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(clippy::exhaustive_enums, reason = "there are no other cases")]
pub enum RunError {
    /// The lock was not acquired, and the work was not begun.
    #[error(transparent)]
    Acquire(#[from] LockError),
    /// The lock was lost, and the work was stopped. A part of the work may be done.
    #[error("the lock was lost, and the work under it was stopped: {}", .0.cause())]
    Lost(LostError),
}

impl From<LostError> for RunError {
    fn from(lost: LostError) -> Self {
        Self::Lost(lost)
    }
}

impl RunError {
    /// Returns whether the work was not begun because another holder has the lock, as [`LockError::is_contended`] does.
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Acquire(error) if error.is_contended())
    }

    /// Returns the key of the lock; `None` in the cases in which [`LockError::key`] returns `None`.
    pub fn key(&self) -> Option<&LockKey> {
        match self {
            Self::Acquire(error) => error.key(),
            Self::Lost(lost) => Some(lost.key()),
        }
    }

    /// Returns the holder of a lock for which no node was asked.
    pub(super) fn unasked_holder(&self) -> Option<&OwnerLabel> {
        match self {
            Self::Acquire(error) => error.unasked_holder(),
            Self::Lost(_) => None,
        }
    }

    /// Returns the vote of each node; `None` if no node was asked. If the lock was lost, those of [`LostError::votes`].
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Acquire(error) => error.votes(),
            Self::Lost(lost) => lost.votes(),
        }
    }
}
