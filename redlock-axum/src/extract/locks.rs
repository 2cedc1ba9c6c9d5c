//! The extractors for the application's [`LockManager`].

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Once;

use axum::extract::{FromRef, FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use redlock_core::__private::is_in_scope;
use redlock_core::LockManager;

use crate::locks_layer::Installed;
use crate::rejection::LockRejection;

/// Extracts the application's [`LockManager`] from its state, for a handler that acquires locks in its own code.
///
/// The state is a `LockManager`, or implements `FromRef` for it (axum's `#[derive(FromRef)]`). For an `Arc<App>`,
/// see [the attribute](crate::redis_lock#the-manager). A router whose state has no manager does not compile. The
/// attribute [`redis_lock`](crate::redis_lock) uses the same manager.
///
/// Add a [`LocksLayer`](crate::LocksLayer) to the router, so that a request never waits for a lock that it holds
/// itself. Without it, the first extraction logs a warning. In an application without a state, use [`InstalledLocks`].
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::post};
/// use redlock_axum::{LockManager, LockRejection, Locks, LocksLayer};
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
/// let app: Router = Router::new()
///     .route("/settle", post(settle))
///     .layer(LocksLayer::new(&locks))
///     .with_state(locks);
/// ```
///
/// ```compile_fail
/// # use axum::{Router, routing::post};
/// # use redlock_axum::Locks;
/// async fn settle(locks: Locks) {}
///
/// // The router has no state, and so no manager.
/// let app: Router = Router::new().route("/settle", post(settle));
/// ```
#[derive(Debug, Clone)]
pub struct Locks(
    /// The manager.
    pub LockManager,
);

impl Deref for Locks {
    type Target = LockManager;

    fn deref(&self) -> &LockManager {
        &self.0
    }
}

impl<S> FromRequestParts<S> for Locks
where
    S: Sync,
    LockManager: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, Infallible> {
        static WARNED: Once = Once::new();
        if !is_in_scope() {
            WARNED.call_once(|| {
                tracing::warn!(
                    "a handler extracts `Locks`, but its request may wait for a lock that it holds \
                     itself; add `.layer(LocksLayer::new(&locks))` as the last layer of the router"
                );
            });
        }
        Ok(Self(LockManager::from_ref(state)))
    }
}

/// Extracts the [`LockManager`] that a [`LocksLayer`](crate::LocksLayer) has installed, for a handler of an
/// application without a state.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::post};
/// use redlock_axum::{InstalledLocks, LockManager, LockRejection, LocksLayer};
///
/// async fn settle(locks: InstalledLocks) -> Result<&'static str, LockRejection> {
///     let guard = locks.lock("settlement").try_acquire().await?;
///     // ...
///     let _ = guard.release().await;
///     Ok("settled")
/// }
///
/// let locks = LockManager::in_memory();
/// let app: Router =
///     Router::new().route("/settle", post(settle)).layer(LocksLayer::new(&locks));
/// ```
///
/// # Errors
///
/// Without an installed manager the request is answered with [`LockRejection::missing_manager`]: status 500,
/// and an error in the log that contains the line to add. `Option<InstalledLocks>` extracts `None` instead.
#[derive(Debug, Clone)]
pub struct InstalledLocks(
    /// The manager.
    pub LockManager,
);

impl InstalledLocks {
    fn of(parts: &Parts) -> Option<Self> {
        Installed::manager(&parts.extensions).cloned().map(Self)
    }
}

impl Deref for InstalledLocks {
    type Target = LockManager;

    fn deref(&self) -> &LockManager {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for InstalledLocks {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockRejection> {
        Self::of(parts).ok_or_else(LockRejection::missing_manager)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for InstalledLocks {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(parts))
    }
}

impl From<Locks> for LockManager {
    fn from(Locks(manager): Locks) -> Self {
        manager
    }
}

impl From<InstalledLocks> for LockManager {
    fn from(InstalledLocks(manager): InstalledLocks) -> Self {
        manager
    }
}
