//! The extractor for the application's [`LockManager`].

use std::convert::Infallible;
use std::ops::Deref;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use redlock_core::LockManager;

use crate::rejection::LockRejection;

/// Extracts the application's [`LockManager`], for a handler that acquires locks in its own code.
///
/// The attribute `#[redis_lock]` and the layers use the same manager. The application installs it with
/// `.layer(axum::Extension(locks))`, as the last call on the router, so that it reaches every route.
///
/// # Examples
///
/// ```
/// use axum::{Extension, Router, routing::post};
/// use redlock_axum::{LockManager, LockRejection, Locks};
///
/// async fn settle(locks: Locks) -> Result<&'static str, LockRejection> {
///     let work = async |_lock| {
///         // ...
///         "settled"
///     };
///     Ok(locks.lock("settlement").run(work).await?)
/// }
///
/// let locks = LockManager::in_memory();
/// let app = Router::new().route("/settle", post(settle)).layer(Extension(locks));
/// # let _: Router = app;
/// ```
///
/// # Errors
///
/// Without an installed manager the request is answered with [`LockRejection::missing_manager`]: status 500,
/// and an error in the log that contains the line to add. `Option<Locks>` extracts `None` instead.
#[derive(Debug, Clone)]
pub struct Locks(
    /// The manager.
    pub LockManager,
);

impl Locks {
    fn of(parts: &Parts) -> Option<Self> {
        parts.extensions.get::<LockManager>().cloned().map(Self)
    }
}

impl Deref for Locks {
    type Target = LockManager;

    fn deref(&self) -> &LockManager {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for Locks {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockRejection> {
        Self::of(parts).ok_or_else(LockRejection::missing_manager)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Locks {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(parts))
    }
}
