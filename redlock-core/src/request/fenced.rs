//! Requests for a lock whose holders are numbered.

use super::LockRequest;
use crate::error::LockError;
use crate::guard::{FencedGuard, LockGuard};

impl LockRequest {
    /// Numbers the holders of the lock, so that the resource can refuse one that comes late: the guard
    /// has a [`FencingToken`](crate::FencingToken), which says what it promises.
    ///
    /// On several nodes it costs one more round trip. The counter lies in the slot of the lock, so that
    /// fenced locks work on servers in cluster mode too. A [`prefix`](crate::LockManagerBuilder::prefix) with
    /// a `{` that begins no hash tag leaves no such name, and is refused with
    /// [`LockError::InvalidOption`], as is a node that cannot number holders. The servers' users need the
    /// rights to `TIME`, and to `GET` and `SET` the keys `redlock:fencing*` behind the manager's prefix.
    pub fn fenced(self) -> LockRequest<FencedGuard> {
        self.with_guard(true)
    }
}

impl LockRequest<FencedGuard> {
    /// Makes one attempt to acquire the lock, as [`LockRequest::try_acquire`] does.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::try_acquire`]. [`LockError::AlreadyHeld`] also where a reentrant request
    /// would share a lock that has no number.
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
    /// As [`LockRequest::acquire`]. [`LockError::AlreadyHeld`] also where a reentrant request would
    /// share a lock that has no number.
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::acquire`].
    pub async fn acquire(self) -> Result<FencedGuard, LockError> {
        FencedGuard::new(self.with_guard::<LockGuard>(true).acquire().await?)
    }
}
