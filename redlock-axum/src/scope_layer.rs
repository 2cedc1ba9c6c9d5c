//! The tower layer that installs the application's manager, and makes each request one holder.

use std::task::{Context, Poll};

use http::{Extensions, Request};
use redlock_core::{LockManager, Scoped, scope};
use tower_layer::Layer;
use tower_service::Service;

/// Makes each request one holder, and installs the [`LockManager`] of the application.
///
/// * Each request runs in a [`scope`]: it never waits for a lock that it holds itself. A handler that locks by
///   hand, or calls functions that lock, needs this layer for that.
/// * Handlers with the argument `installed` of the [attribute](crate::redis_lock) use the manager. Other handlers take it
///   from the router's state, and a [`LockLayer`](crate::LockLayer) has its own.
///
/// Make it the last [`Router::layer`](axum::Router::layer) call, so that it reaches every route. A handler with
/// `installed` that does not find the manager is answered with 500, and the log contains the line to add.
///
/// # Examples
///
/// ```
/// use axum::extract::{FromRef, State};
/// use axum::{Router, routing::post};
/// use redlock_axum::{LockManager, LockRejection, ScopeLayer};
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
///     .layer(ScopeLayer::new(&app.locks))
///     .with_state(app);
/// ```
///
/// A middleware that decides for each request whether it is locked, and by which key. Add it by
/// [`from_fn_with_state`](axum::middleware::from_fn_with_state) before this layer:
///
/// ```
/// use std::time::Duration;
///
/// use axum::extract::{Request, State};
/// use axum::middleware::Next;
/// use axum::response::Response;
/// use redlock_axum::{KeyPart, LockManager, LockRejection};
///
/// /// Processes requests with the same `Idempotency-Key` one after another. A request without it is not locked.
/// async fn one_at_a_time(
///     State(locks): State<LockManager>,
///     request: Request,
///     next: Next,
/// ) -> Result<Response, LockRejection> {
///     let Some(key) = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok())
///     else {
///         return Ok(next.run(request).await);
///     };
///     // Values from outside are escaped.
///     let lock = locks.lock(format!("idempotency:{}", KeyPart(key)));
///     let lock = lock.expire(Duration::from_secs(10)).wait_time(Duration::from_secs(2));
///     Ok(lock.run(async |_lock| next.run(request).await).await?)
/// }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ScopeLayer {
    installed: Installed,
}

/// The manager in the extensions of a request. The type is private, so that only [`ScopeLayer`] installs a manager.
#[derive(Debug, Clone)]
pub(crate) struct Installed(LockManager);

impl Installed {
    /// Returns the manager that a [`ScopeLayer`] has installed.
    pub(crate) fn manager(extensions: &Extensions) -> Option<&LockManager> {
        extensions.get().map(|Self(manager)| manager)
    }
}

impl ScopeLayer {
    /// Creates a layer that installs this manager.
    pub fn new(locks: &LockManager) -> Self {
        Self { installed: Installed(locks.clone()) }
    }
}

impl<S> Layer<S> for ScopeLayer {
    type Service = ScopeService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ScopeService { inner, installed: self.installed.clone() }
    }
}

/// Installs the manager in each request, and runs the request in a scope. Created by [`ScopeLayer`].
#[derive(Debug, Clone)]
pub struct ScopeService<S> {
    inner: S,
    installed: Installed,
}

impl<S, B> Service<Request<B>> for ScopeService<S>
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
