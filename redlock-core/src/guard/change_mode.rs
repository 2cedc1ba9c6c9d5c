//! Turning a held exclusive lock into a shared one.

use std::sync::Arc;

use super::handle::LockHandle;
use super::lock_guard::LockGuard;
use crate::error::{HoldError, InvalidOption, Votes};
use crate::lease::Held;
use crate::lock::Mode;
use crate::queue::Queues;

impl LockGuard {
    /// Turns an exclusive lock into a [shared](crate::LockRequest::shared) one, in one step: no other exclusive holder
    /// gets the lock in between. Wakes the callers that wait for a shared lock. The lease and its renewal go on. Does
    /// nothing if the lock was acquired as a shared one.
    ///
    /// # Errors
    ///
    /// * [`HoldError::Lost`] if the lock is lost, or its lease ended before a quorum of nodes confirmed the change.
    /// * [`HoldError::Unavailable`] if no quorum of nodes confirmed the change in time. The lock counts as shared from
    ///   now on. On the nodes that have not executed the change, it stays exclusive until it is released, or until
    ///   another call of this method reaches them.
    /// * [`HoldError::InvalidOption`] if the lock has several keys, if its [dialect](crate::Dialect) or a node has no
    ///   shared locks, or if another guard of the same [scope](crate::scope()) has joined the exclusive lock, and relies
    ///   on it. The lock stays exclusive.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is held as before, or as after [`HoldError::Unavailable`].
    /// [`is_shared`](LockHandle::is_shared) tells which.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::LockManager;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.lock("catalogue").try_acquire().await?;
    /// // ... write ...
    /// guard.downgrade().await?;
    /// let another = locks.lock("catalogue").shared().try_acquire().await?;
    /// # drop((guard, another)); Ok(()) }
    /// ```
    pub async fn downgrade(&self) -> Result<(), HoldError> {
        let LockHandle { context, held } = &**self;
        let attempt = held.attempt();
        if attempt.spec().mode().is_shared() && !attempt.is_downgraded() {
            return Ok(());
        }
        if attempt.spec().has_several_keys() {
            let message = "a lock of several keys cannot be shared";
            return Err(InvalidOption::conflict("shared", message).into());
        }
        context.check_mode(Mode::SHARED, attempt.spec().dialect())?;
        let remaining = held.remaining();
        if remaining.is_zero() {
            return Err(self.lost_error(Votes::default()));
        }
        let _wake_readers = WakeReaders(&context.queues, held);
        let downgrade = held.begin_downgrade()?;
        self.checked(context.ballot.downgrade(attempt, &downgrade, remaining).await)
    }
}

/// Wakes the readers of this process when a downgrade ends, or its future is dropped.
struct WakeReaders<'a>(&'a Queues, &'a Arc<Held>);

impl Drop for WakeReaders<'_> {
    fn drop(&mut self) {
        self.0.wake_readers(self.1);
    }
}
