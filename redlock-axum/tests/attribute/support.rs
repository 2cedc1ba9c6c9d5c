//! An application on a node in memory, and what to ask of it.

#![expect(clippy::unwrap_used, reason = "an error here is a failure of the test")]

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::{Extension, Router};
use http_body_util::BodyExt;
use redlock_axum::{LockGuard, LockManager, MemoryNode};
use redlock_logs::Logs;
use tokio::time::timeout;
use tower::ServiceExt;

/// A manager, and the node that its locks are on.
pub(crate) async fn locks() -> (LockManager, MemoryNode) {
    redlock_logs::watch();
    let node = MemoryNode::new();
    let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
    (locks, node)
}

/// Holds a lock as another copy of the service would.
pub(crate) async fn held_by_another(node: &MemoryNode, key: &str) -> LockGuard {
    let other = LockManager::builder().memory_node(node).connect().await.unwrap();
    other.lock(key).expire(Duration::from_secs(30)).try_acquire().await.unwrap()
}

/// The router with the manager installed, as the documentation says.
pub(crate) fn app(router: Router, locks: &LockManager) -> Router {
    router.layer(Extension(locks.clone()))
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

pub(crate) async fn send(app: &Router, request: Request<Body>) -> Answer {
    let response = app.clone().oneshot(request);
    let response = timeout(Duration::from_secs(10), response).await.unwrap().unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    Answer { status: parts.status, headers: parts.headers, body }
}

pub(crate) async fn get(app: &Router, path: &str) -> Answer {
    send(app, Request::get(path).body(Body::empty()).unwrap()).await
}

pub(crate) async fn post_json(app: &Router, path: &str, json: &'static str) -> Answer {
    let request = Request::post(path).header("content-type", "application/json");
    send(app, request.body(Body::from(json)).unwrap()).await
}

/// Waits until the condition holds, at most ten seconds.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "not within ten seconds: {what}");
        tokio::task::yield_now().await;
    }
}

/// Sends requests until the log has a line of this level and text. Of like lines there is one per
/// second, and another test may have had this second's.
pub(crate) async fn until_logged(logs: &Logs, level: &str, text: &str, send: impl AsyncFn()) {
    let start = Instant::now();
    while logs.count(level, text) == 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "{text}: {:?}", logs.lines());
        send().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
