//! A lock that a request or a function holds, and what becomes of it afterwards.

use std::sync::Arc;

use redlock_core::__private::LogLimit;
use redlock_core::{FencedGuard, FencingToken, Lease, LockError, LockGuard, LockRequest};

use crate::held_slot::Held;
use crate::rejection::log_limited;
use crate::until_lost::{UntilLost, Watch};

/// A lock that is held until its work has ended: then it is released, or left to run out.
#[derive(Debug)]
pub struct Hold {
    lease: Lease,
    token: Option<FencingToken>,
    /// `None` once `release` has taken it.
    guard: Option<LockGuard>,
    keep: bool,
}

impl Hold {
    /// Takes a lock, numbered or not.
    pub(crate) async fn acquire(request: LockRequest, fenced: bool) -> Result<Self, LockError> {
        if fenced {
            request.fenced().acquire().await.map(Self::fenced)
        } else {
            request.acquire().await.map(Self::new)
        }
    }

    fn new(guard: LockGuard) -> Self {
        Self { lease: guard.lease(), token: None, guard: Some(guard), keep: false }
    }

    fn fenced(guard: FencedGuard) -> Self {
        let token = guard.fencing_token();
        let mut hold = Self::new(guard.into_guard());
        hold.token = Some(token);
        hold
    }

    /// Leaves the lock to run out, however the work ends: a panic, a client that goes away.
    #[must_use]
    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }

    /// What extractors are to see of it.
    pub(crate) fn held(&self) -> Held {
        Held { lease: self.lease.clone(), token: self.token }
    }

    /// How often like events of the manager's locks are logged.
    pub(crate) fn log_limit(&self) -> &Arc<LogLimit> {
        self.lease.log_limit()
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
            log_limited!(
                self.log_limit(),
                "not released",
                LogLimit::failed_node(error.votes()),
                warn,
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

#[cfg(test)]
mod tests {
    use redlock_core::{LockManager, MemoryNode};

    use super::*;

    /// A client that goes away, or a panic, drops the work and the hold.
    #[tokio::test]
    async fn a_hold_that_is_dropped_leaves_a_kept_lock_and_releases_any_other() {
        for keep in [false, true] {
            let node = MemoryNode::new();
            let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
            let hold = Hold::acquire(locks.lock("a"), false).await.unwrap();
            drop(if keep { hold.keep() } else { hold });
            assert_eq!(node.len(), usize::from(keep));
        }
    }
}
