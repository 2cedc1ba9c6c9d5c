//! Requests that are repeated are executed once: a button that is pressed twice, and a webhook that is delivered twice.
//!
//! The answers are on the first server of `LOCKS_URLS`, which must be Redis, or else in the memory of this copy.

mod server;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, map_request};
use axum::response::Response;
use axum::routing::post;
use redlock_axum::{Answers, IdempotencyLayer, LockManagerConfig, MemoryAnswers, RedisAnswers};
use server::Work;

/// The number of orders and of deliveries of this copy. It stands in for a database.
type Count = Arc<AtomicU64>;

/// The button: the page makes a key when it shows the button, and sends it with each press.
async fn order(
    State(count): State<Count>,
    Query(work): Query<Work>,
    article: String,
) -> (StatusCode, String) {
    let number = count.fetch_add(1, Ordering::Relaxed) + 1;
    work.run_logged("order").await;
    (StatusCode::CREATED, format!("order {number}: {article}\n"))
}

/// The webhook: its sender repeats it until it gets an answer.
async fn deliver(State(count): State<Count>, event: String) -> String {
    let number = count.fetch_add(1, Ordering::Relaxed) + 1;
    format!("delivery {number}: {event}\n")
}

/// The client of a request, whom the login has verified.
#[derive(Clone)]
struct Customer(String);

/// Stands in for a login: a real one verifies a token.
async fn login(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let name =
        token.and_then(|token| token.strip_prefix("Bearer ")).ok_or(StatusCode::UNAUTHORIZED)?;
    let customer = Customer(name.to_owned());
    request.extensions_mut().insert(customer);
    Ok(next.run(request).await)
}

fn customer(parts: &Parts) -> Option<String> {
    parts.extensions.get().map(|Customer(name)| name.clone())
}

/// The sender of the webhooks numbers them by a header of its own (Standard Webhooks). A real service verifies the signature here.
async fn key_of_webhook(mut request: Request) -> Request {
    if let Some(id) = request.headers().get("webhook-id").cloned() {
        request.headers_mut().insert("idempotency-key", id);
    }
    request
}

async fn service() -> Result<(), Box<dyn Error>> {
    let locks = server::connect().await?;
    let urls = std::env::var("LOCKS_URLS").unwrap_or_default();
    let answers: Arc<dyn Answers> = match LockManagerConfig::split_urls(&urls).first() {
        Some(url) => Arc::new(RedisAnswers::connect(url).await?),
        None => Arc::new(MemoryAnswers::new()),
    };
    // A second press waits for the first one, and shows the same order.
    let by_customer =
        IdempotencyLayer::new(&locks, Arc::clone(&answers)).wait(Duration::from_secs(10));
    let by_customer = by_customer.scope(customer)?;
    // All webhooks come from one sender.
    let by_sender =
        IdempotencyLayer::new(&locks, answers).scope(|_| Some("payments.example".to_owned()))?;
    let app = Router::new()
        .route("/orders", post(order).layer(by_customer).layer(from_fn(login)))
        .route("/webhooks", post(deliver).layer(by_sender).layer(map_request(key_of_webhook)))
        .with_state(Count::default());
    server::serve(app, &locks).await
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(service()).await
}
