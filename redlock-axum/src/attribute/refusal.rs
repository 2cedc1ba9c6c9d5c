//! The response of a handler whose lock was not acquired, or was lost.
//!
//! Without `on_reject`, the response comes from the error type of the handler's `Result`, if that has a conversion from
//! the library's rejection. The generated code selects the conversion by the method `refuse` on
//! `&&HandlerOutput<T>`: the compiler prefers the implementation for the type with the most references whose bounds hold.

use std::fmt;
use std::marker::PhantomData;

use axum::response::{IntoResponse, Response};

use crate::rejection::LockRejection;

/// The output of a handler's future, as a type.
pub struct HandlerOutput<T>(PhantomData<fn() -> T>);

impl<T> HandlerOutput<T> {
    /// Returns a value whose type is inferred from [`of`](Self::of).
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(PhantomData)
    }

    /// Tells the compiler that `T` is the output of this future.
    pub fn of<F: Future<Output = T>>(&self, _: &F) {}
}

impl<T> fmt::Debug for HandlerOutput<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandlerOutput")
    }
}

/// For a handler that returns a `Result` whose error is `From<LockRejection>`.
pub trait ByConversion {
    /// Returns the response.
    fn refuse(&self, rejection: LockRejection) -> Response;
}

/// For all other handlers.
pub trait ByDefault {
    /// Returns the response.
    fn refuse(&self, rejection: LockRejection) -> Response;
}

impl<T, E> ByConversion for &HandlerOutput<Result<T, E>>
where
    E: From<LockRejection>,
    Result<T, E>: IntoResponse,
{
    fn refuse(&self, rejection: LockRejection) -> Response {
        rejection.respond_by(|rejection| Result::<T, E>::Err(rejection.into()))
    }
}

impl<T> ByDefault for HandlerOutput<T> {
    fn refuse(&self, rejection: LockRejection) -> Response {
        rejection.into_response()
    }
}

/// Returns the response that `respond` makes.
pub fn refuse_by<R: IntoResponse>(
    rejection: LockRejection,
    respond: impl FnOnce(LockRejection) -> R,
) -> Response {
    rejection.respond_by(respond)
}
