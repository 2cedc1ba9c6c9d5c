//! Helper functions for the tests of this folder.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may")]

pub(crate) mod voting_node;

use std::convert::Infallible;
use std::future::Ready;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use axum::{Extension, Router};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use redlock_axum::{
    LockError, LockGuard, LockLayer, LockManager, LockPolicy, MemoryNode, ScopeLayer,
};
use redlock_logs::Logs;
use tokio::time::timeout;
use tower::{Service, ServiceExt};

/// Returns a manager on one in-memory node, and the node itself.
pub(crate) async fn memory() -> (LockManager, MemoryNode) {
    redlock_logs::watch();
    let node = MemoryNode::new();
    let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
    (locks, node)
}

/// Installs the manager in the router, and makes it the router's state, as the documentation says.
pub(crate) fn app(router: Router<LockManager>, locks: &LockManager) -> Router {
    router.layer(ScopeLayer::new(locks)).with_state(locks.clone())
}

/// Installs the manager in a router without a state, or with a state of its own. Handlers that lock by hand extract it
/// as an extension.
pub(crate) fn installed(router: Router, locks: &LockManager) -> Router {
    router.layer(Extension(locks.clone())).layer(ScopeLayer::new(locks))
}

/// Returns a layer with one policy.
pub(crate) fn layer(locks: &LockManager, policy: impl Into<LockPolicy>) -> LockLayer {
    LockLayer::new(locks, policy).unwrap()
}

/// Returns a layer with a table of policies.
pub(crate) fn table(
    locks: &LockManager,
    policies: impl IntoIterator<Item = LockPolicy>,
) -> LockLayer {
    LockLayer::table(locks, policies).unwrap()
}

/// Acquires a key with a lease that no test outlives.
pub(crate) async fn hold(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(Duration::from_secs(60)).try_acquire().await.unwrap()
}

/// Acquires a lock as another copy of the service.
pub(crate) async fn held_by_another(node: &MemoryNode, key: &str) -> LockGuard {
    let other = LockManager::builder().memory_node(node).connect().await.unwrap();
    hold(&other, key).await
}

/// Returns whether the request or the function that calls this holds the lock.
pub(crate) async fn is_held_by_caller(locks: &LockManager, key: &str) -> bool {
    let again = locks.lock(key).try_acquire().await;
    matches!(again, Err(LockError::AlreadyHeld { .. }))
}

pub(crate) fn request(method: Method, path: &str) -> Request<Body> {
    Request::builder().method(method).uri(path).body(Body::empty()).unwrap()
}

pub(crate) async fn send(app: &Router, method: Method, path: &str) -> Response {
    app.clone().oneshot(request(method, path)).await.unwrap()
}

/// Sends a POST and returns the status.
pub(crate) async fn post(app: &Router, path: &str) -> u16 {
    send(app, Method::POST, path).await.status().as_u16()
}

pub(crate) async fn text(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A response with its whole body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// Sends a request. Panics if the response takes more than ten seconds.
pub(crate) async fn answer(app: &Router, request: Request<Body>) -> Answer {
    let response = app.clone().oneshot(request);
    let response = timeout(Duration::from_secs(10), response).await.unwrap().unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    Answer { status, headers, body: text(response).await }
}

pub(crate) async fn get(app: &Router, path: &str) -> Answer {
    answer(app, request(Method::GET, path)).await
}

pub(crate) async fn post_json(app: &Router, path: &str, json: &'static str) -> Answer {
    let request = Request::post(path).header("content-type", "application/json");
    answer(app, request.body(Body::from(json)).unwrap()).await
}

/// Waits until background work has made the condition true. Panics after ten seconds.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within ten seconds");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Sends requests until the log has a line of this level and text. The log gets one line of a kind
/// per second, and another test may have caused the line of this second.
pub(crate) async fn until_logged(logs: &Logs, level: &str, text: &str, send: impl AsyncFn()) {
    let start = Instant::now();
    while logs.count(level, text) == 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "{text}: {:?}", logs.lines());
        send().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A service that enforces tower's contract: a service may be called only after `poll_ready` of the
/// same instance.
#[derive(Default)]
pub(crate) struct OnlyWhenReady(bool);

impl Clone for OnlyWhenReady {
    fn clone(&self) -> Self {
        Self(false)
    }
}

impl Service<Request<Body>> for OnlyWhenReady {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0 = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.0), "called without being polled ready");
        std::future::ready(Ok(Response::default()))
    }
}
