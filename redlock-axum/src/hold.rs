//! A lock that a request or a function holds, and what becomes of it afterwards.

use redlock_core::{Lease, LockError, LockGuard};

use crate::until_lost::{UntilLost, Watch};

/// A lock that is held until its work has ended: then it is released, or left to run out.
#[derive(Debug)]
pub struct Hold {
    lease: Lease,
    /// `None` once `release` has taken it.
    guard: Option<LockGuard>,
    keep: bool,
}

impl Hold {
    pub(crate) fn new(guard: LockGuard) -> Self {
        Self { lease: guard.lease(), guard: Some(guard), keep: false }
    }

    /// Leaves the lock to run out, however the work ends: a panic, a client that goes away.
    #[must_use]
    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Looks out for the loss of the lock.
    pub(crate) fn watch(&self) -> Watch {
        Watch::new(self.lease.clone())
    }

    /// Does the work as long as the lock is held. When it is lost, the work is dropped.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`], and the work is not finished.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    pub fn until_lost<F: Future>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<F::Output, LockError>> + use<F> {
        UntilLost::new(Some(self.watch()), work)
    }

    /// Gives the lock back before the result of the work leaves, so that the caller's next request
    /// does not meet its own lock. A failure is no reason to take a finished result back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the lock back in the background.
    pub async fn release(mut self) {
        let Some(guard) = self.guard.take() else { return };
        if self.keep {
            guard.keep_until_expiry();
        } else if let Err(error) = guard.release().await {
            tracing::warn!(
                "work under a lock has ended, but the lock was not released in order: {error}"
            );
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.keep
            && let Some(guard) = self.guard.take()
        {
            guard.keep_until_expiry();
        }
    }
}
