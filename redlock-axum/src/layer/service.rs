use std::ops::ControlFlow;
use std::task::{Context, Poll};

use axum::response::{IntoResponse, Response};
use http::Request;
use tower_service::Service;

use super::LockLayer;
use crate::rejection::LockRejection;
use crate::serve::ResponseFuture;
use crate::serve::locked::{locked, locked_detached};

/// Locks each request that has a policy before passing it to the inner service. Created by [`LockLayer`].
#[derive(Debug, Clone)]
pub struct LockService<S> {
    inner: S,
    layer: LockLayer,
}

impl<S> LockService<S> {
    /// Creates a service that locks each request that has a policy of `layer` before it calls `inner`.
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = LockLayer::new(&LockManager::in_memory(), "import")?;
    /// let service = LockService::new(service_fn(import), layer);
    /// let response = service.oneshot(Request::new(Body::empty())).await?;
    /// assert_eq!(response.status(), 200);
    /// # Ok(()) }
    /// ```
    pub fn new(inner: S, layer: LockLayer) -> Self {
        Self { inner, layer }
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
        let (mut parts, body) = request.into_parts();
        let (lock, place) = match self.layer.lock(&mut parts) {
            Ok(Some(locked)) => locked,
            Ok(None) => {
                let request = Request::from_parts(parts, body);
                return ResponseFuture::unlocked(self.inner.call(request));
            }
            Err(rejection) => return ResponseFuture::rejected(self.layer.reject(rejection)),
        };
        // Only the service on which `poll_ready` was called is ready, so the clone stays behind.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        let refuse = move |rejection: LockRejection| layer.reject(rejection.at(place));
        let respond = |result: Result<S::Response, S::Error>| match result {
            Ok(response) => ControlFlow::Continue(response.into_response()),
            Err(error) => ControlFlow::Break(Err(error)),
        };
        let work = move || inner.call(Request::from_parts(parts, body));
        if lock.http.detached {
            ResponseFuture::locked(locked_detached(lock, refuse, respond, Ok, work))
        } else {
            ResponseFuture::locked(locked(lock, refuse, respond, Ok, work))
        }
    }
}
