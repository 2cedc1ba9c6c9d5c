use std::sync::Arc;
use std::task::{Context, Poll};

use axum::response::{IntoResponse, Response};
use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use super::policies::LockPolicies;
use super::table::{PolicyDecision, Table};
use crate::config::LayerConfig;
use crate::rejection::LockRejection;
use crate::serve;
use crate::serve::ResponseFuture;
use crate::serve::route_key;

/// Locks each request that has a policy before passing it to the inner service. Created by [`LockPolicies`].
#[derive(Debug, Clone)]
pub struct PolicyService<S> {
    inner: S,
    table: Arc<Table>,
    config: Arc<LayerConfig>,
}

impl<S> PolicyService<S> {
    /// Creates a service that locks each request that has a policy before it calls `inner`.
    ///
    /// The policy is found by the route that axum has matched, so the service must be inside of a router.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use axum::Router;
    /// use axum::body::Body;
    /// use http::{Request, Response};
    /// use redlock_axum::{LockManager, LockPolicies, LockPolicy, PolicyService};
    /// use tower::{ServiceExt, service_fn};
    ///
    /// async fn pay(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    ///     Ok(Response::new(Body::from("paid")))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = LockPolicy::new("/orders/{id}/pay", "order:{id:u64}");
    /// let policies = LockPolicies::new([policy])?.manager(LockManager::in_memory());
    /// let service = PolicyService::new(service_fn(pay), policies);
    ///
    /// let app: Router = Router::new().route_service("/orders/{id}/pay", service);
    /// let response = app.oneshot(Request::post("/orders/42/pay").body(Body::empty())?).await?;
    /// assert_eq!(response.status(), 200);
    /// # Ok(()) }
    /// ```
    pub fn new(inner: S, policies: LockPolicies) -> Self {
        let LockPolicies { table, config } = policies;
        Self { inner, table, config }
    }

    /// Refuses a request whose path fits the route of a policy that axum did not match.
    fn refuse<F, E: Send + 'static>(&self, policy: &str) -> ResponseFuture<F, E> {
        let rejection = LockRejection::misconfigured(format!(
            "the lock policy for {policy} fits the path of a request, but axum did not match that route; either the \
             router has no such route, or the policies are not installed with `Router::layer` or \
             `Router::route_layer` on the router that has it"
        ));
        ResponseFuture::rejected(self.config.reject(rejection))
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

impl<S> Layer<S> for LockPolicies {
    type Service = PolicyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PolicyService::new(inner, self.clone())
    }
}

impl<S, B> Service<Request<B>> for PolicyService<S>
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
        match self.table.decide(&request) {
            PolicyDecision::Unlocked => ResponseFuture::unlocked(self.inner.call(request)),
            PolicyDecision::Refused { policy } => self.refuse(&policy),
            // A request that no route has matched goes to a fallback.
            PolicyDecision::RefusedUnlessFallback { policy } => {
                let (mut parts, body) = request.into_parts();
                if route_key::is_unmatched(&mut parts) {
                    ResponseFuture::unlocked(self.inner.call(Request::from_parts(parts, body)))
                } else {
                    self.refuse(&policy)
                }
            }
            PolicyDecision::Locked(route_lock) => {
                serve::serve(&route_lock, &self.config, &mut self.inner, request)
            }
        }
    }
}
