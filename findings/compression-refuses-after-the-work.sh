#!/usr/bin/env bash
# CompressionLayer answers 406 after the handler has run.
#
# One would expect: a request whose `Accept-Encoding` allows no encoding, `identity;q=0`, is refused before its handler
# runs, so that 406 means that nothing was done.
#
# What happens (tower-http 0.7.1): the layer calls the handler, drops its response, and answers 406. Version 0.6.11 sends
# the response without an encoding.
#
# Why it matters: a client that takes 406 for a refusal sends its payment again. The lock of the first payment is free
# by then, and does not protect it. An idempotency key does.
. "$(dirname "$0")/environment.sh"
. "$(dirname "$0")/rust.sh"
crates 'axum = "=0.8.9"' 'tokio = { version = "1", features = ["full"] }' \
    'tower = { version = "=0.5.3", features = ["util"] }' \
    'old = { package = "tower-http", version = "=0.6.11", features = ["compression-gzip"] }' \
    'tower-http = { version = "=0.7.1", features = ["compression-gzip"] }'
run_rust <<'RUST'
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::post;
use tower::ServiceExt;

async fn pay(app: Router) -> u16 {
    let request = Request::post("/").header("accept-encoding", "identity;q=0");
    app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
}

#[tokio::main]
async fn main() {
    let payments = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&payments);
    let handler = async move || {
        counted.fetch_add(1, Ordering::SeqCst);
        "paid"
    };
    let app = Router::new().route("/", post(handler));
    let new = app.clone().layer(tower_http::compression::CompressionLayer::new());
    assert_eq!(pay(new).await, 406);
    assert_eq!(payments.load(Ordering::SeqCst), 1);
    println!("seen: tower-http 0.7.1 answers 406 after the handler has run");
    assert_eq!(pay(app.layer(old::compression::CompressionLayer::new())).await, 200);
    assert_eq!(payments.load(Ordering::SeqCst), 2);
    println!("seen: tower-http 0.6.11 answers 200");
}
RUST
