//! The lock of a request or a function, from acquisition to release.

use std::sync::Arc;

use redlock_core::__private::{AbortOnLoss, LogLimit, LossWatcher};
use redlock_core::{LockGuard, LockHandle, LostError, OnLost};

/// A lock that is held while work runs under it.
#[derive(Debug)]
pub struct ActiveLock {
    guard: LockGuard,
}

impl ActiveLock {
    pub(crate) fn new(guard: LockGuard) -> Self {
        Self { guard }
    }

    /// Returns a view of the lock for the extractors.
    pub(crate) fn handle(&self) -> LockHandle {
        self.guard.handle()
    }

    /// Returns the manager's limit for logging similar events.
    pub(crate) fn log_limit(&self) -> &Arc<LogLimit> {
        self.guard.log_limit()
    }

    /// Returns a watcher that reports the loss of the lock, if the loss stops the work.
    pub(crate) fn watch(&self, on_lost: OnLost) -> Option<LossWatcher> {
        LossWatcher::new(&self.guard, on_lost)
    }

    /// Runs the work while the lock is held, and drops the work when the lock is lost.
    ///
    /// # Errors
    ///
    /// A [`LostError`] if the lock was lost before the work was finished.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    pub fn until_lost<F: Future>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<F::Output, LostError>> + use<F> {
        AbortOnLoss::new(self.watch(OnLost::Abort), work)
    }

    /// Releases the lock. Await it before the result of the work is returned, so that the caller's next
    /// request does not meet its own lock.
    ///
    /// A failed release is only logged, because the work is done and its result stays valid.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background.
    pub fn release(self) -> impl Future<Output = ()> + Send + use<> {
        self.guard.release_or_log()
    }
}
