//! Requests with idempotency keys, over each store of answers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod at_once;
mod contract;
mod faults;
mod in_flight;
mod kills;
mod layers;
mod options;
mod outcomes;
mod played;
mod refusals;
mod replays;
mod stores;
mod table;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::{MethodRouter, any};
use redlock_axum::{
    Answers, IdempotencyLayer, LockManager, MemoryAnswers, PostgresAnswers, RedisAnswers,
    UnscopedKeys,
};
use redlock_tests::{Nodes, eventually};
use tower::ServiceExt;

/// Deadline for what takes no time, or a lease of some seconds, on an idle machine.
const SOON: Duration = Duration::from_secs(60);

/// The servers of a service that runs as several copies: nodes, and the store of answers, which is on the first server.
pub(crate) struct Stage {
    pub(crate) nodes: Nodes,
    memory: MemoryAnswers,
}

/// The manager and the store of one copy of the service.
#[derive(Clone)]
pub(crate) struct Copy {
    pub(crate) locks: LockManager,
    pub(crate) answers: Arc<dyn Answers>,
}

/// The header in which the layer of the login finds the client. A test is that layer.
#[derive(Clone)]
pub(crate) struct Customer(String);

/// Connects to a database that accepts connections, although a busy machine may not do it within a second.
pub(crate) async fn postgres_answers(url: &str) -> PostgresAnswers {
    eventually("the store is connected", SOON, async || PostgresAnswers::connect(url).await.ok())
        .await
}

fn customer(parts: &Parts) -> Option<String> {
    parts.extensions.get().map(|Customer(name)| name.clone())
}

impl Stage {
    pub(crate) fn new(nodes: Nodes) -> Self {
        Self { nodes, memory: MemoryAnswers::new() }
    }

    pub(crate) async fn copy(&self) -> Copy {
        let answers: Arc<dyn Answers> = match self.nodes.urls().first() {
            None => Arc::new(self.memory.clone()),
            Some(url) if url.starts_with("postgres") => Arc::new(postgres_answers(url).await),
            Some(url) => Arc::new(RedisAnswers::connect(url).await.unwrap()),
        };
        Copy { locks: self.nodes.manager().await, answers }
    }
}

pub(crate) type Unscoped = IdempotencyLayer<UnscopedKeys>;

impl Copy {
    /// Returns a layer with the default options.
    pub(crate) fn layer(&self) -> Unscoped {
        IdempotencyLayer::new(&self.locks, Arc::clone(&self.answers))
    }

    /// Returns the service with one route `/pay`.
    pub(crate) fn app(&self, handler: MethodRouter) -> Router {
        route(handler, self.layer())
    }
}

/// Returns a service with one route `/pay` behind a layer.
pub(crate) fn route(handler: MethodRouter, layer: Unscoped) -> Router {
    let layer = layer.scope(customer).unwrap();
    Router::new().route("/pay", handler).layer(layer)
}

/// A handler that counts how often it runs, and answers with that number.
#[derive(Clone, Default)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(crate) fn runs(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts a run, and returns its number.
    pub(crate) fn run(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn handler(&self) -> MethodRouter {
        let counted = self.clone();
        any(move || async move { (StatusCode::CREATED, format!("payment {}", counted.run())) })
    }
}

pub(crate) fn request(key: &str, body: &'static str) -> Request<Body> {
    let mut request = Request::post("/pay").body(Body::from(body)).unwrap();
    request.headers_mut().insert("idempotency-key", key.parse().unwrap());
    request.extensions_mut().insert(Customer("7".to_owned()));
    request
}

/// Sets the client of a request.
pub(crate) fn by(mut request: Request<Body>, customer: &str) -> Request<Body> {
    request.extensions_mut().insert(Customer(customer.to_owned()));
    request
}

/// A response with its whole body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn is_replayed(&self) -> bool {
        self.headers.get("idempotency-replayed").is_some_and(|value| value == "true")
    }

    /// Returns the member `code` of a problem.
    pub(crate) fn code(&self) -> String {
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        assert_eq!(problem["status"], self.status, "{self:?}");
        problem["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn is(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{self:?}");
    }
}

pub(crate) async fn send(app: &Router, request: Request<Body>) -> Answer {
    let response = app.clone().oneshot(request).await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    Answer { status, headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

/// Sends a request until its answer is not 503: on a busy machine, nodes may seem to be late. The handler has not run then.
pub(crate) async fn decided(app: &Router, make: impl Fn() -> Request<Body>) -> Answer {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let answer = send(app, make()).await;
        if answer.status != 503 || tokio::time::Instant::now() > deadline {
            return answer;
        }
    }
}
