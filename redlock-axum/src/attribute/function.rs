//! Functions and methods with `#[redis_lock(manager = ..)]`.

use redlock_core::__private::Keys;
use redlock_core::{KeyError, LockError, LockManager, LockRequest, OnLost, RunError};

use super::options::Options;

/// Returns a request for the lock. The types of the parameters say what the arguments of the attribute must be.
pub fn request(manager: &LockManager, keys: Result<impl Into<Keys>, KeyError>) -> LockRequest {
    LockRequest::new(manager.context(), keys.map(Into::into))
}

/// Runs the function under its lock. `refuse` makes the result of a function that does not run, or is stopped, and
/// `skipped` its result while another holder has the lock.
///
/// The work is a closure, because a future as an argument would be stored twice.
pub fn run<C: FunctionError, W: Future>(
    request: LockRequest,
    options: Options,
    refuse: impl FnOnce(C) -> W::Output,
    skipped: Option<impl FnOnce() -> W::Output>,
    work: impl FnOnce() -> W,
) -> impl Future<Output = W::Output> {
    // Before the future, which would store the options too.
    let request = options.apply_to(request).on_lost(C::ON_LOST);
    async move { settled(request.run(|_| work()).await, refuse, skipped) }
}

/// As [`run`], but from the acquired lock to its release, the function runs in a task of its own.
pub fn run_detached<C: FunctionError, W>(
    request: LockRequest,
    options: Options,
    refuse: impl FnOnce(C) -> W::Output,
    skipped: Option<impl FnOnce() -> W::Output>,
    work: impl FnOnce() -> W + Send + 'static,
) -> impl Future<Output = W::Output>
where
    W: Future<Output: Send + 'static> + Send + 'static,
{
    let request = options.apply_to(request).on_lost(C::ON_LOST);
    async move { settled(request.run_detached(|_| work()).await, refuse, skipped) }
}

fn settled<C: FunctionError, R>(
    result: Result<R, RunError>,
    refuse: impl FnOnce(C) -> R,
    skipped: Option<impl FnOnce() -> R>,
) -> R {
    match (result, skipped) {
        (Ok(output), _) => output,
        (Err(RunError::Acquire(error)), Some(skipped)) if error.is_contended() => skipped(),
        (Err(error), _) => refuse(C::of(error)),
    }
}

/// The error of a function's lock.
pub trait FunctionError {
    /// What happens to the work if the lock is lost.
    const ON_LOST: OnLost;

    /// Returns the error.
    fn of(error: RunError) -> Self;
}

impl FunctionError for RunError {
    const ON_LOST: OnLost = OnLost::Abort;

    fn of(error: RunError) -> Self {
        error
    }
}

/// For functions whose work is not stopped.
impl FunctionError for LockError {
    const ON_LOST: OnLost = OnLost::KeepGoing;

    fn of(error: RunError) -> Self {
        match error {
            RunError::Acquire(error) => error,
            RunError::Lost(_) => unreachable!("`ON_LOST` lets the work go on"),
        }
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
