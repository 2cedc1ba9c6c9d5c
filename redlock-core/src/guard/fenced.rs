//! The guard of a held lock whose holder has a number.

use std::fmt;
use std::time::Duration;

use super::handle::{LockHandle, LockState};
use super::lock_guard::LockGuard;
use super::lost::Lost;
use crate::error::{ExtendError, LockError, ReleaseError};
use crate::fencing_token::FencingToken;
use crate::key::LockKey;

/// A held lock whose holder has a number: a [`LockGuard`] with a [`fencing_token`](Self::fencing_token).
///
/// # Examples
///
/// ```
/// use redlock_core::{FencingToken, LockError, LockManager};
///
/// /// Refuses the write of a holder that is earlier than the last one.
/// fn write(seen: &mut Option<FencingToken>, token: FencingToken) -> Result<(), &'static str> {
///     if seen.is_some_and(|seen| token < seen) {
///         return Err("a later holder has written");
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
/// drop(slow); // or its lease ran out, and the slow holder has not noticed
///
/// let next = locks.lock("report").fenced().acquire().await?;
/// assert!(write(&mut seen, next.fencing_token()).is_ok());
/// assert!(write(&mut seen, slow_token).is_err());
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped; bind it by `let guard = ..`, because `let _ = ..` drops it at once"]
pub struct FencedGuard {
    guard: LockGuard,
    token: FencingToken,
}

impl FencedGuard {
    /// Makes a fenced guard. Fails with [`LockError::AlreadyHeld`] if the guard has joined a lock that has
    /// no number.
    pub(crate) fn new(guard: LockGuard) -> Result<Self, LockError> {
        match guard.fencing_token() {
            Some(token) => Ok(Self { guard, token }),
            // The joined lock was acquired by a request that is not fenced.
            None => Err(LockError::AlreadyHeld { key: guard.key().clone() }),
        }
    }

    /// Returns the number of this holder. It is fixed when the lock is acquired: an extension keeps it,
    /// and guards that have joined the lock have the same number.
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// Returns the key of the lock, without the manager's prefix.
    pub fn key(&self) -> &LockKey {
        self.guard.key()
    }

    /// Returns how long the lock stays valid, as [`LockGuard::remaining`] does.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns whether the lock is still valid, as far as this process knows. Does not ask the nodes.
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Returns the state of the lock, see [`LockState`].
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

    /// Extends the lease to at least `expire` from now, as [`LockGuard::extend`] does. The number stays
    /// the same.
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

    /// Returns a view of this lock, which can be cloned and passed around.
    pub fn handle(&self) -> LockHandle {
        self.guard.handle()
    }

    /// Ends the guard without releasing the lock, as [`LockGuard::keep_until_expiry`] does.
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

    /// Returns a reference to the guard without the number, for functions that take a `&LockGuard`.
    pub fn as_guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Returns the guard without the number.
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
