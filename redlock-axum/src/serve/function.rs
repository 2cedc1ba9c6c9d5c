//! The parts of a function with `#[redis_lock(manager = ..)]` that need no generated code.

use redlock_core::__private::{AbortOnLoss, Keys, LossWatcher, request_of};
use redlock_core::{
    KeyError, LockError, LockGuard, LockManager, LockOptions, LockRequest, LostError, OnLost,
};

/// Returns a request for the lock. The types of the parameters say what the arguments of the attribute must be.
pub fn request(manager: &LockManager, keys: Result<impl Into<Keys>, KeyError>) -> LockRequest {
    request_of(manager, keys.map(Into::into))
}

/// Acquires the lock of a function with `manager = ..`.
///
/// # Errors
///
/// The errors of [`LockRequest::acquire`].
pub async fn acquire_for_function(
    request: LockRequest,
    options: LockOptions,
) -> Result<ActiveLock, LockError> {
    request.options(options).acquire().await.map(ActiveLock)
}

/// The lock of a function while it runs.
#[derive(Debug)]
pub struct ActiveLock(LockGuard);

impl ActiveLock {
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
        AbortOnLoss::new(LossWatcher::new(&self.0, OnLost::Abort), work)
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
        self.0.release_or_log()
    }
}

/// The return type of a function with `manager = ..`.
#[diagnostic::on_unimplemented(
    message = "a function with `#[redis_lock(manager = ..)]` must return a `Result`, not `{Self}`",
    label = "this type cannot say that the lock was refused",
    note = "return a `Result` whose error type implements `From<LockError>`, or add `error = ..`"
)]
pub trait LockedResult<E> {
    /// Returns the result of a function whose lock was not acquired, or was lost.
    fn refused(error: E) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E> LockedResult<E> for Result<T, E> {
    fn refused(error: E) -> Self {
        Err(error)
    }
}

/// The return type of a function with `skip`, where `V` is the type of the value.
#[diagnostic::on_unimplemented(
    message = "while another holder has the lock, `skip` returns `Ok` with a value of type `{V}`, but the \
               function returns `{Self}`",
    label = "`skip` returns a value of another type",
    note = "`skip` alone returns `Ok(None)`, so the function must return a `Result<Option<..>, ..>`; \
            `skip = value` returns `Ok(value)`"
)]
pub trait SkippedResult<V> {
    /// Returns the result of the function while another holder has the lock.
    fn skipped(value: V) -> Self;
}

#[diagnostic::do_not_recommend]
impl<V, E> SkippedResult<V> for Result<V, E> {
    fn skipped(value: V) -> Self {
        Ok(value)
    }
}
