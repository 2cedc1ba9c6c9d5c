//! The response of a handler whose lock was not acquired, or was lost.
//!
//! Without `on_reject`, the response comes from the error type of the handler's `Result`, if that has a conversion from
//! the library's rejection. The generated code selects the conversion by the method `refuse` on `&&Output<T>`: the
//! compiler prefers the implementation for the type with the most references whose bounds hold.

use std::fmt;
use std::marker::PhantomData;

use axum::response::{IntoResponse, Response};

use crate::rejection::LockRejection;

/// The output of a handler, as a type.
pub struct Output<T>(PhantomData<fn() -> T>);

impl<T> Output<T> {
    /// Returns the output.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> fmt::Debug for Output<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

/// For a handler that returns a `Result` whose error is `From<LockRejection>`.
pub trait ByConversion {
    /// Returns the function that makes the response.
    fn refuse(&self) -> fn(LockRejection) -> Response;
}

/// For all other handlers.
pub trait ByDefault {
    /// Returns the function that makes the response.
    fn refuse(&self) -> fn(LockRejection) -> Response;
}

impl<T, E: From<LockRejection> + IntoResponse> ByConversion for &Output<Result<T, E>> {
    fn refuse(&self) -> fn(LockRejection) -> Response {
        |rejection| rejection.respond_by(E::from)
    }
}

impl<T> ByDefault for Output<T> {
    fn refuse(&self) -> fn(LockRejection) -> Response {
        IntoResponse::into_response
    }
}

/// Returns the response that `respond` makes.
pub fn refuse_by<R: IntoResponse>(
    rejection: LockRejection,
    respond: impl FnOnce(LockRejection) -> R,
) -> Response {
    rejection.respond_by(respond)
}
