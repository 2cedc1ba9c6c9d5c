//! A lock that is held, with the number of its holder.

use std::fmt;
use std::time::Duration;

use super::handle::{LockHandle, LockState};
use super::lock_guard::LockGuard;
use super::lost::Lost;
use crate::error::{ExtendError, LockError, ReleaseError};
use crate::fencing_token::FencingToken;
use crate::key::LockKey;

/// A lock that is held, with the number of its holder. It does what a [`LockGuard`] does, and has a
/// [`fencing_token`](Self::fencing_token).
///
/// # Examples
///
/// ```
/// use redlock_core::{FencingToken, LockError, LockManager};
///
/// /// Refuses what comes from an earlier holder than it has seen.
/// fn write(seen: &mut Option<FencingToken>, token: FencingToken) -> Result<(), &'static str> {
///     if seen.is_some_and(|seen| token < seen) {
///         return Err("somebody later has been here");
///     }
///     *seen = Some(token);
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::in_memory();
/// let mut seen = None;
///
/// let slow = locks.lock("report").fenced().acquire().await?;
/// let slow_token = slow.fencing_token();
/// drop(slow); // or its lease is over, while it still believes in it
///
/// let next = locks.lock("report").fenced().acquire().await?;
/// assert!(write(&mut seen, next.fencing_token()).is_ok());
/// assert!(write(&mut seen, slow_token).is_err());
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct FencedGuard {
    guard: LockGuard,
    token: FencingToken,
}

impl FencedGuard {
    /// Fails with [`LockError::AlreadyHeld`] where the guard shares a lock that has no number.
    pub(crate) fn new(guard: LockGuard) -> Result<Self, LockError> {
        match guard.fencing_token() {
            Some(token) => Ok(Self { guard, token }),
            // No number was asked for.
            None => Err(LockError::AlreadyHeld { key: guard.key().clone() }),
        }
    }

    /// The number of this holder. Fixed when the lock was acquired: extending keeps it, and guards
    /// that share the lock have the same.
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// What is locked, without the manager's prefix.
    pub fn key(&self) -> &LockKey {
        self.guard.key()
    }

    /// How long the holder may still believe in the lock; see [`LockGuard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Whether the lock is still held, as far as can be known without asking the nodes.
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// The state of the lock, see [`LockState`].
    pub fn state(&self) -> LockState {
        self.guard.state()
    }

    /// Resolves when the lock is lost, as [`LockGuard::lost`] does.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub fn lost(&self) -> Lost {
        self.guard.lost()
    }

    /// Makes the lease last at least `expire` from now, as [`LockGuard::extend`] does. The number stays.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::extend`].
    ///
    /// # Cancel safety
    ///
    /// As [`LockGuard::extend`].
    pub async fn extend(&self, expire: Duration) -> Result<(), ExtendError> {
        self.guard.extend(expire).await
    }

    /// A view of this lock to hand around.
    pub fn handle(&self) -> LockHandle {
        self.guard.handle()
    }

    /// Ends the holding without releasing, as [`LockGuard::keep_until_expiry`] does.
    pub fn keep_until_expiry(self) {
        self.guard.keep_until_expiry();
    }

    /// Releases the lock, as [`LockGuard::release`] does.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`LockGuard::release`].
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.guard.release().await
    }

    /// The same guard without the number.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }
}

impl fmt::Debug for FencedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedGuard")
            .field("key", self.key())
            .field("token", &self.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
