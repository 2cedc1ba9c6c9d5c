use std::sync::Arc;
use std::task::{Context, Poll};

use axum::response::{IntoResponse, Response};
use http::Request;
use tower_service::Service;

use super::LockLayer;
use crate::config::LayerConfig;
use crate::config::RouteLock;
use crate::serve;
use crate::serve::ResponseFuture;

/// Locks each request before passing it to the inner service. Created by [`LockLayer`].
#[derive(Debug, Clone)]
pub struct LockService<S> {
    inner: S,
    route_lock: Arc<RouteLock>,
    config: Arc<LayerConfig>,
}

impl<S> LockService<S> {
    /// Creates a service that locks each request with the settings of `layer` before it calls `inner`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use axum::body::Body;
    /// use http::{Request, Response};
    /// use redlock_axum::{LockLayer, LockManager, LockService};
    /// use tower::{ServiceExt, service_fn};
    ///
    /// async fn import(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    ///     Ok(Response::new(Body::from("imported")))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let layer = LockLayer::new("import").manager(LockManager::in_memory());
    /// let service = LockService::new(service_fn(import), layer);
    /// let response = service.oneshot(Request::new(Body::empty())).await?;
    /// assert_eq!(response.status(), 200);
    /// # Ok(()) }
    /// ```
    pub fn new(inner: S, layer: LockLayer) -> Self {
        let LockLayer { route_lock, config, reported: _ } = layer;
        Self { inner, route_lock, config }
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

impl<S, B> Service<Request<B>> for LockService<S>
where
    S: Service<Request<B>, Response: IntoResponse, Error: Send, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !self.route_lock.matches(request.method()) {
            return ResponseFuture::unlocked(self.inner.call(request));
        }
        serve::serve(&self.route_lock, &self.config, &mut self.inner, request)
    }
}
