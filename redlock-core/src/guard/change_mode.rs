//! Turning a held exclusive lock into a shared one, and back.

use std::fmt;

use super::handle::LockHandle;
use super::lock_guard::LockGuard;
use crate::error::{Votes, with_key_and_votes};
use crate::key::LockKey;

/// The error of [`LockGuard::downgrade`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DowngradeError {
    /// The lock has several keys, or another guard of the same [scope](crate::scope()) has joined the exclusive lock, and
    /// relies on it. The lock stays exclusive.
    #[error("the lock has several keys, or another guard of the same request relies on it")]
    #[non_exhaustive]
    InUse {
        /// The guard of the exclusive lock.
        guard: LockGuard,
    },
    /// No quorum of nodes confirmed the change in time. The lock counts as shared from now on. On the nodes that have
    /// not executed the change, it stays exclusive until it is released.
    #[error("no quorum of nodes has confirmed that the lock is shared")]
    #[non_exhaustive]
    Unavailable {
        /// The guard of the shared lock.
        guard: LockGuard,
        /// The vote of each node.
        votes: Votes,
    },
    /// The lock is lost, as in [`ExtendError::Lost`](crate::ExtendError::Lost).
    #[error("the lock is lost")]
    #[non_exhaustive]
    Lost {
        /// The key of the lock.
        key: LockKey,
        /// The vote of each node. Empty if the lease had run out before any node was asked.
        votes: Votes,
    },
}

impl DowngradeError {
    /// Returns the key of the lock.
    pub fn key(&self) -> &LockKey {
        match self {
            Self::InUse { guard } | Self::Unavailable { guard, .. } => guard.key(),
            Self::Lost { key, .. } => key,
        }
    }

    /// Returns the vote of each node, or `None` if no node was asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::InUse { .. } => None,
            Self::Unavailable { votes, .. } | Self::Lost { votes, .. } => Some(votes),
        }
    }

    /// Returns the error for logs and operators: the message, the key of the lock, and the vote of each node. Not for
    /// clients, as [`LockError::diagnostics`](crate::LockError::diagnostics).
    pub fn diagnostics(&self) -> impl fmt::Display {
        with_key_and_votes(self, self.key(), self.votes())
    }

    /// Returns the guard, unless the lock is lost.
    pub fn into_guard(self) -> Option<LockGuard> {
        match self {
            Self::InUse { guard } | Self::Unavailable { guard, .. } => Some(guard),
            Self::Lost { .. } => None,
        }
    }
}

impl LockGuard {
    /// Turns an exclusive lock into a [shared](crate::LockRequest::shared) one, in one step: no other exclusive holder
    /// gets the lock in between. Wakes the callers that wait for a shared lock. Returns the guard of a lock that is
    /// shared already.
    ///
    /// The lease and its renewal go on. [Handles](Self::handle) of this guard stay valid.
    ///
    /// # Errors
    ///
    /// Returns a [`DowngradeError`] of any variant. All but [`Lost`](DowngradeError::Lost) contain the guard.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released, as if the guard were dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::LockManager;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let writer = locks.lock("catalogue").try_acquire().await?;
    /// // ... write ...
    /// let reader = writer.downgrade().await?;
    /// let another = locks.lock("catalogue").shared().try_acquire().await?;
    /// # drop((reader, another)); Ok(()) }
    /// ```
    pub async fn downgrade(self) -> Result<Self, DowngradeError> {
        let LockHandle { context, held } = self.handle();
        let attempt = held.attempt();
        if attempt.mode().is_shared() {
            return Ok(self);
        }
        if attempt.spec().has_several_keys() {
            return Err(DowngradeError::InUse { guard: self });
        }
        let _gate = attempt.mode_gate.write().await;
        context.wait_after_move().await;
        let remaining = held.remaining();
        if remaining.is_zero() {
            let (key, votes) = (attempt.key().clone(), Votes::default());
            return Err(DowngradeError::Lost { key, votes });
        }
        // From now on, a release covers a shared lock too.
        let downgrade = attempt.downgrade_op();
        attempt.downgrade();
        // A guard that joins the lock is counted before it looks at the mode.
        if held.has_other_guards() {
            attempt.stay_exclusive();
            return Err(DowngradeError::InUse { guard: self });
        }
        let confirmed = context.ballot.downgrade(&downgrade, remaining).await;
        let result = match confirmed {
            Ok(()) => Ok(self),
            Err((true, votes)) => {
                context.keeper.lose_all(&held);
                Err(DowngradeError::Lost { key: attempt.key().clone(), votes })
            }
            Err((false, votes)) => Err(DowngradeError::Unavailable { guard: self, votes }),
        };
        context.queues.wake_readers(&held);
        result
    }
}
