//! Requests for a lock whose holders have numbers.

use super::LockRequest;
use crate::error::LockError;
use crate::guard::{FencedGuard, LockGuard};

impl LockRequest {
    /// Numbers the holders of the lock, so that the resource can refuse a late holder: the request then
    /// returns a [`FencedGuard`] with a [`FencingToken`](crate::FencingToken), whose page states what
    /// the number guarantees.
    ///
    /// On several nodes a fenced lock costs one more round trip. The fencing counter is in the same slot
    /// as the lock, so that fenced locks work on servers in cluster mode too. If the manager's
    /// [`prefix`](crate::LockManagerBuilder::prefix) has a `{` that begins no hash tag, no name for the
    /// counter is in that slot, and the acquisition fails with [`LockError::InvalidOption`]. It fails in
    /// the same way if a node cannot number holders. The servers' users need the rights to `TIME`, and
    /// to `GET` and `SET` the keys `redlock:fencing*` behind the manager's prefix.
    pub fn fenced(self) -> LockRequest<FencedGuard> {
        self.with_guard(true)
    }

    /// Numbers the holders if `fenced`, without another type of the guard: [`LockGuard::fencing_token`] returns the
    /// token. No public API.
    #[doc(hidden)]
    pub fn fenced_if(self, fenced: bool) -> Self {
        self.with_guard(fenced)
    }
}

impl LockRequest<FencedGuard> {
    /// Makes one attempt to acquire the lock, as [`LockRequest::try_acquire`] does.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::try_acquire`]. [`LockError::AlreadyHeld`] also if a reentrant request would
    /// join a lock that has no number.
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::try_acquire`].
    pub async fn try_acquire(self) -> Result<FencedGuard, LockError> {
        FencedGuard::new(self.with_guard::<LockGuard>(true).try_acquire().await?)
    }

    /// Acquires the lock, waiting as [`LockRequest::acquire`] does.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::acquire`]. [`LockError::AlreadyHeld`] also if a reentrant request would join a
    /// lock that has no number.
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::acquire`].
    pub async fn acquire(self) -> Result<FencedGuard, LockError> {
        FencedGuard::new(self.with_guard::<LockGuard>(true).acquire().await?)
    }
}
