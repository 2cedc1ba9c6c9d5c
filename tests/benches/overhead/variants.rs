//! The variants of a route: without a lock, and with one by each of the ways to take it.

#![allow(clippy::expect_used, reason = "a benchmark or a test that cannot continue must stop")]

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use redlock_axum::{LockLayer, LockManager, LockPolicy, redis_lock};
use tokio::runtime::Runtime;
use tower::{Service, ServiceExt};

const ROUTE: &str = "/orders/{id}/pay";
const LEASE: Duration = Duration::from_secs(5);

async fn bare(Path(id): Path<u64>) -> &'static str {
    std::hint::black_box(id);
    "paid"
}

#[redis_lock(key = "order:{id}", expire = 5)]
async fn attribute(Path(id): Path<u64>) -> &'static str {
    std::hint::black_box(id);
    "paid"
}

async fn by_hand(locks: LockManager, id: u64) -> &'static str {
    let guard = locks.lock(format!("order:{id}")).expire(LEASE).try_acquire().await;
    let guard = guard.expect("the lock is free");
    std::hint::black_box(id);
    guard.release().await.expect("the lock is held");
    "paid"
}

/// Reads the body of its request.
async fn bare_upload(Path(id): Path<u64>, body: Bytes) -> &'static str {
    std::hint::black_box((id, body));
    "paid"
}

async fn upload_by_hand(locks: LockManager, id: u64, body: Bytes) -> &'static str {
    std::hint::black_box(body);
    by_hand(locks, id).await
}

/// One variant of the route.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    app: Router,
    /// The body of each request.
    body: &'static [u8],
}

impl Variant {
    fn new(name: &'static str, app: Router) -> Self {
        Self { name, app, body: b"" }
    }

    fn with_body(name: &'static str, app: Router) -> Self {
        Self { name, app, body: b"a body that arrives as a whole" }
    }

    pub(crate) fn serve(&mut self, runtime: &Runtime, requests: u32) {
        let Self { app, body, .. } = self;
        runtime.block_on(async {
            for _ in 0..requests {
                let request = Request::post("/orders/42/pay").body(Body::from(*body));
                let ready = ServiceExt::<Request<Body>>::ready(app).await;
                let app = ready.expect("a router is always ready");
                let response = app.call(request.expect("a request")).await;
                let status = response.expect("a router does not fail").status();
                assert_eq!(status, StatusCode::OK, "the handler ran");
            }
        });
    }
}

/// Returns the bare route, the lock in the handler, the attribute, the layer, a table, and the bare route behind
/// an empty middleware.
pub(crate) fn variants() -> [Variant; 6] {
    let locks = LockManager::in_memory();
    let route = |handler| Router::new().route(ROUTE, handler);
    let policy = LockPolicy::new("order:{id:u64}").expire(LEASE);
    let layer = LockLayer::new(&locks, policy.clone()).expect("a policy");
    let table = LockLayer::table(&locks, [policy.route(ROUTE)]).expect("a table");
    let empty = tower::util::MapRequestLayer::new(|request: Request<Body>| request);
    let hand = locks.clone();
    let hand = move |Path(id): Path<u64>| by_hand(hand.clone(), id);
    [
        Variant::new("bare route", route(post(bare))),
        Variant::new("lock in the handler", route(post(hand))),
        Variant::new("attribute", Router::new().route(ROUTE, post(attribute)).with_state(locks)),
        Variant::new("layer", route(post(bare).route_layer(layer))),
        Variant::new("table", route(post(bare)).layer(table)),
        Variant::new("empty middleware", route(post(bare).route_layer(empty))),
    ]
}

/// Returns the variants whose handlers read the bodies of their requests: without a lock, with the lock in the handler, and
/// with a layer, which reads the body before it asks for the lock.
pub(crate) fn uploads() -> [Variant; 3] {
    let locks = LockManager::in_memory();
    let route = |handler| Router::new().route(ROUTE, handler);
    let policy = LockPolicy::new("order:{id:u64}").expire(LEASE);
    let layer = LockLayer::new(&locks, policy).expect("a policy");
    let hand = move |Path(id): Path<u64>, body: Bytes| upload_by_hand(locks.clone(), id, body);
    [
        Variant::with_body("bare route, a body", route(post(bare_upload))),
        Variant::with_body("lock in the handler, a body", route(post(hand))),
        Variant::with_body("layer, a body", route(post(bare_upload).route_layer(layer))),
    ]
}
