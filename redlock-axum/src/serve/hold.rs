//! A lock that a request or a function holds, and what becomes of it afterwards.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use redlock_core::__private::LogLimit;
use redlock_core::{
    FencedGuard, FencingToken, LockError, LockGuard, LockHandle, LockRequest, LostError,
};

use super::abort_on_loss::{AbortOnLoss, LossWatcher};
use crate::extract::lock_slot::Held;
use crate::rejection::{LockRejection, log_limited};

/// A lock that is held until its work has ended.
#[derive(Debug)]
pub struct Hold {
    handle: LockHandle,
    token: Option<FencingToken>,
    guard: LockGuard,
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
        Self { handle: guard.handle(), token: None, guard }
    }

    fn fenced(guard: FencedGuard) -> Self {
        let token = guard.fencing_token();
        let mut hold = Self::new(guard.into_guard());
        hold.token = Some(token);
        hold
    }

    /// What extractors are to see of it.
    pub(crate) fn held(&self) -> Held {
        Held { handle: self.handle.clone(), token: self.token }
    }

    /// How often like events of the manager's locks are logged.
    pub(crate) fn log_limit(&self) -> &Arc<LogLimit> {
        self.handle.log_limit()
    }

    /// Looks out for the loss of the lock.
    pub(crate) fn watch(&self) -> LossWatcher {
        LossWatcher::new(self.handle.clone())
    }

    /// Does the work as long as the lock is held. When it is lost, the work is dropped.
    ///
    /// # Errors
    ///
    /// A [`LostError`], and the work is not finished.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    pub fn until_lost<F: Future>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<F::Output, LostError>> + use<F> {
        AbortOnLoss::new(Some(self.watch()), work)
    }

    /// The answer of a handler that was stopped because its lock was lost. It is logged within the limit of
    /// the lock's manager.
    pub fn refuse(&self, error: LostError) -> Response {
        LockRejection::from(error).limited_by(self.log_limit()).into_response()
    }

    /// Gives the lock back before the result of the work leaves, so that the caller's next request
    /// does not meet its own lock. A failure is no reason to take a finished result back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the lock back in the background.
    pub async fn release(self) {
        let Self { handle, guard, .. } = self;
        if let Err(error) = guard.release().await {
            log_limited!(
                handle.log_limit(),
                "not released",
                LogLimit::failed_node(error.votes()),
                warn,
                "work under a lock has ended, but the lock was not released in order: {error}"
            );
        }
    }
}
