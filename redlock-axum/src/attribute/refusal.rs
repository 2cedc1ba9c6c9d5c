//! The response of a handler whose lock was not acquired, or was lost.
//!
//! Without `error` and `on_reject`, the response comes from the error type of the handler's `Result`, if that
//! has a conversion from the library's errors. The generated code selects the conversion by the method
//! `refuse` on `&&&HandlerOutput<T>`: the compiler prefers the implementation for the type with the most
//! references whose bounds hold.

use std::fmt;
use std::marker::PhantomData;

use axum::response::{IntoResponse, Response};
use redlock_core::{LockError, RunError};

use crate::rejection::LockRejection;

/// The output of a handler's future, as a type.
pub struct HandlerOutput<T>(PhantomData<fn() -> T>);

/// The output of the future of a handler with `on_lost = abort`, as a type.
pub struct AbortableOutput<T>(PhantomData<fn() -> T>);

macro_rules! outputs {
    ($($output:ident),*) => {$(
        impl<T> $output<T> {
            /// Returns a value whose type is inferred from [`of`](Self::of).
            #[allow(clippy::new_without_default)]
            pub const fn new() -> Self {
                Self(PhantomData)
            }

            /// Tells the compiler that `T` is the output of this future.
            pub fn of<F: Future<Output = T>>(&self, _: &F) {}
        }

        impl<T> fmt::Debug for $output<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($output))
            }
        }

        impl<T, E> ByLockRejection for &&$output<Result<T, E>>
        where
            E: From<LockRejection>,
            Result<T, E>: IntoResponse,
        {
            fn refuse(&self, rejection: LockRejection) -> Response {
                rejection.respond_by(|rejection| Result::<T, E>::Err(rejection.into()))
            }
        }

        impl<T> WithoutConversion for $output<T> {
            fn refuse(&self, rejection: LockRejection) -> Response {
                rejection.into_response()
            }
        }
    )*};
}
outputs!(HandlerOutput, AbortableOutput);

/// For a handler that returns a `Result` whose error is `From<LockRejection>`.
pub trait ByLockRejection {
    /// Returns the response.
    fn refuse(&self, rejection: LockRejection) -> Response;
}

/// For a handler that returns a `Result` whose error is `From<LockError>`.
pub trait ByLockError {
    /// Returns the response.
    fn refuse(&self, rejection: LockRejection) -> Response;
}

/// For a handler with `on_lost = abort` that returns a `Result` whose error is `From<RunError>`.
pub trait ByRunError {
    /// Returns the response.
    fn refuse(&self, rejection: LockRejection) -> Response;
}

/// For all other handlers.
pub trait WithoutConversion {
    /// Returns the response.
    fn refuse(&self, rejection: LockRejection) -> Response;
}

impl<T, E> ByLockError for &HandlerOutput<Result<T, E>>
where
    E: From<LockError>,
    Result<T, E>: IntoResponse,
{
    fn refuse(&self, rejection: LockRejection) -> Response {
        refuse_by_lock_error(rejection, |error| Result::<T, E>::Err(error.into()))
    }
}

impl<T, E> ByRunError for &AbortableOutput<Result<T, E>>
where
    E: From<RunError>,
    Result<T, E>: IntoResponse,
{
    fn refuse(&self, rejection: LockRejection) -> Response {
        refuse_by_run_error(rejection, |error| Result::<T, E>::Err(error.into()))
    }
}

/// Returns the response that `respond` makes.
pub fn refuse_by<R: IntoResponse>(
    rejection: LockRejection,
    respond: impl FnOnce(LockRejection) -> R,
) -> Response {
    rejection.respond_by(respond)
}

/// Returns the response of the error that `convert` makes.
pub fn refuse_by_lock_error<R: IntoResponse>(
    rejection: LockRejection,
    convert: impl FnOnce(LockError) -> R,
) -> Response {
    match rejection.run_error() {
        Some(RunError::Acquire(error)) => rejection.respond_by(|_| convert(error)),
        _ => rejection.into_response(),
    }
}

/// Returns the response of the error that `convert` makes.
pub fn refuse_by_run_error<R: IntoResponse>(
    rejection: LockRejection,
    convert: impl FnOnce(RunError) -> R,
) -> Response {
    match rejection.run_error() {
        Some(error) => rejection.respond_by(|_| convert(error)),
        None => rejection.into_response(),
    }
}
