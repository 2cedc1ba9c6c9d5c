//! Requests for a lock of several keys.

use std::sync::Arc;

use super::LockRequest;
use crate::context::Context;
use crate::error::{LockError, RunError};
use crate::fencing_token::FencingToken;
use crate::guard::{FencedGuard, LockGuard, LockHandle, MultiGuard};
use crate::key::{KeyError, KeySet};

impl LockRequest<MultiGuard> {
    pub(crate) fn of_all(context: Arc<Context>, keys: Result<KeySet, KeyError>) -> Self {
        LockRequest::new(context, keys).with_guard(false)
    }

    /// Numbers the holders of the lock, as [`fenced`](LockRequest::fenced) of a lock of one key does. The holder
    /// has one number for all keys. For each of the keys it is greater than the numbers of all earlier holders.
    pub fn fenced(self) -> LockRequest<MultiGuard<FencedGuard>> {
        self.with_guard(true)
    }

    /// Makes one attempt to acquire the lock, as [`LockRequest::try_acquire`] does.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::try_acquire`], see also [`LockManager::lock_all`](crate::LockManager::lock_all).
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::try_acquire`].
    pub async fn try_acquire(self) -> Result<MultiGuard, LockError> {
        Ok(MultiGuard::new(self.with_guard::<LockGuard>(false).try_acquire().await?))
    }

    /// Acquires the lock, waiting up to [`wait_time`](Self::wait_time) while another holds one of the keys.
    ///
    /// The caller asks for all keys at once. If a key is held, it waits for that key as
    /// [`LockRequest::acquire`] does, in one queue with the other callers of the key, and then asks for all keys
    /// again. If another key is held by then, it waits in the queue of that key, in front of the callers that arrived
    /// later than it. The lock is never handed over inside the process.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::acquire`], see also [`LockManager::lock_all`](crate::LockManager::lock_all).
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::acquire`].
    pub async fn acquire(self) -> Result<MultiGuard, LockError> {
        Ok(MultiGuard::new(self.with_guard::<LockGuard>(false).acquire().await?))
    }

    /// Acquires the lock, runs the work, and releases the lock, as [`LockRequest::run`] does.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::run`].
    pub async fn run<F, Fut>(self, work: F) -> Result<Fut::Output, RunError>
    where
        F: FnOnce(LockHandle) -> Fut,
        Fut: Future,
    {
        self.with_guard::<LockGuard>(false).run(work).await
    }
}

impl LockRequest<MultiGuard<FencedGuard>> {
    /// Makes one attempt to acquire the lock, as [`LockRequest::try_acquire`] does.
    ///
    /// # Errors
    ///
    /// As the `try_acquire` of a fenced request, see also [`LockManager::lock_all`](crate::LockManager::lock_all).
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::try_acquire`].
    pub async fn try_acquire(self) -> Result<MultiGuard<FencedGuard>, LockError> {
        Ok(MultiGuard::new(self.with_guard::<FencedGuard>(true).try_acquire().await?))
    }

    /// Acquires the lock, waiting as the `acquire` of a request without numbers does.
    ///
    /// # Errors
    ///
    /// As the `acquire` of a fenced request, see also [`LockManager::lock_all`](crate::LockManager::lock_all).
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::acquire`].
    pub async fn acquire(self) -> Result<MultiGuard<FencedGuard>, LockError> {
        Ok(MultiGuard::new(self.with_guard::<FencedGuard>(true).acquire().await?))
    }

    /// Acquires the lock, runs the work, and releases the lock. The closure also gets the number of this
    /// holder.
    ///
    /// # Errors
    ///
    /// As the `run` of a fenced request.
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::run`].
    pub async fn run<F, Fut>(self, work: F) -> Result<Fut::Output, RunError>
    where
        F: FnOnce(LockHandle, FencingToken) -> Fut,
        Fut: Future,
    {
        self.with_guard::<FencedGuard>(true).run(work).await
    }
}
