//! The tower layer that installs the application's manager, and makes each request one holder.

use std::task::{Context, Poll};

use http::{Extensions, Request};
use redlock_core::{LockManager, Scoped, scope};
use tower_layer::Layer;
use tower_service::Service;

/// Installs the [`LockManager`] of the application, and makes each request one holder.
///
/// * The [layers](crate::LockLayer), the [policies](crate::LockPolicies) and handlers with the argument
///   `installed` of the [attribute](crate::redis_lock) use the manager.
/// * Each request runs in a [`scope`]: it never waits for a lock that it holds itself. A handler that locks by
///   hand, or calls a function that locks, needs this layer for that.
///
/// Make it the last [`Router::layer`](axum::Router::layer) call, so that it reaches every route. A request that
/// needs the manager and does not find it is answered with 500, and the log contains the line to add.
///
/// # Examples
///
/// ```
/// use axum::extract::{FromRef, State};
/// use axum::{Router, routing::post};
/// use redlock_axum::{LockManager, LockRejection, LocksLayer};
///
/// #[derive(Clone)]
/// struct App {
///     locks: LockManager,
/// }
///
/// impl FromRef<App> for LockManager {
///     fn from_ref(app: &App) -> Self {
///         app.locks.clone()
///     }
/// }
///
/// async fn settle(State(locks): State<LockManager>) -> Result<&'static str, LockRejection> {
///     let guard = locks.lock("settlement").try_acquire().await?;
///     // ...
///     let _ = guard.release().await;
///     Ok("settled")
/// }
///
/// let app = App { locks: LockManager::in_memory() };
/// let router: Router = Router::new()
///     .route("/settle", post(settle))
///     .layer(LocksLayer::new(&app.locks))
///     .with_state(app);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct LocksLayer {
    installed: Installed,
}

/// The manager in the extensions of a request. The type is private, so that only [`LocksLayer`] installs a
/// manager.
#[derive(Debug, Clone)]
pub(crate) struct Installed(LockManager);

impl Installed {
    /// Returns the manager that a [`LocksLayer`] has installed.
    pub(crate) fn manager(extensions: &Extensions) -> Option<&LockManager> {
        extensions.get().map(|Self(manager)| manager)
    }
}

impl LocksLayer {
    /// Creates a layer that installs this manager.
    pub fn new(locks: &LockManager) -> Self {
        Self { installed: Installed(locks.clone()) }
    }
}

impl<S> Layer<S> for LocksLayer {
    type Service = LocksService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LocksService::new(inner, self.clone())
    }
}

/// Installs the manager in each request, and runs the request in a scope. Created by [`LocksLayer`].
#[derive(Debug, Clone)]
pub struct LocksService<S> {
    inner: S,
    installed: Installed,
}

impl<S> LocksService<S> {
    /// Creates a service that installs the manager of `layer` before it calls `inner`.
    pub fn new(inner: S, layer: LocksLayer) -> Self {
        let LocksLayer { installed } = layer;
        Self { inner, installed }
    }

    /// Gets a reference to the underlying service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Gets a mutable reference to the underlying service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Consumes `self`, returning the underlying service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B> Service<Request<B>> for LocksService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Scoped<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(self.installed.clone());
        scope(self.inner.call(request))
    }
}
