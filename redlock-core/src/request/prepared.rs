//! A request whose acquisition is prepared.

use super::LockRequest;
use super::acquisition::Acquisition;
use super::scope;
use crate::context::Context;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::telemetry::AcquisitionTimer;

/// A request whose key and options are checked. No public API.
pub struct PreparedRequest(pub(super) Acquisition);

impl PreparedRequest {
    pub(super) fn new(request: LockRequest) -> Result<Self, LockError> {
        let prepared = Acquisition::new(request).map(Self);
        prepared.inspect_err(|invalid| AcquisitionTimer::start().set_outcome(Some(invalid)))
    }

    /// Returns the error with which [`acquire`](Self::acquire) would fail now, without asking the nodes and without waiting:
    /// the manager drains or is closed, the caller's scope holds the lock, or, if the caller would not wait, this process holds it.
    pub fn refusal_at_once(&self) -> Option<LockError> {
        let refusal = self.0.look().err();
        if refusal.is_some() {
            AcquisitionTimer::start().set_outcome(refusal.as_ref());
        }
        refusal
    }

    /// Resolves when a [drain](crate::LockManager::drain) refuses the request, with its error. For front ends that wait for
    /// their client before they acquire the lock.
    pub async fn refused_by_drain(&self) -> LockError {
        let Context { ballot, queues, .. } = &*self.0.context;
        ballot.home.drain.until(|| queues.check_drain(scope::caller).is_err()).await;
        self.refusal_at_once().unwrap_or(LockError::Draining)
    }

    /// Acquires the lock, as [`LockRequest::acquire`] does.
    ///
    /// # Errors
    ///
    /// Those of [`LockRequest::acquire`], except that the key and the options are valid.
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::acquire`].
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        self.0.acquire().await
    }
}

impl std::fmt::Debug for PreparedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PreparedRequest").field(&self.0.spec).finish()
    }
}
