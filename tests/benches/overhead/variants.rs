//! The variants of a route: without a lock, and with one by each of the ways to take it.

#![allow(clippy::expect_used, reason = "a benchmark or a test that cannot continue must stop")]

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use redlock_axum::{LockLayer, LockManager, LockPolicy, redis_lock};
use tokio::runtime::Runtime;
use tower::{Service, ServiceExt};

pub(crate) const ROUTE: &str = "/orders/{id}/pay";
pub(crate) const LEASE: Duration = Duration::from_secs(5);

async fn bare(Path(id): Path<u64>) -> &'static str {
    std::hint::black_box(id);
    "paid"
}

#[redis_lock(key = "order:{id}", expire = 5)]
async fn attribute(Path(id): Path<u64>) -> &'static str {
    std::hint::black_box(id);
    "paid"
}

pub(crate) async fn by_hand(locks: LockManager, id: u64) -> &'static str {
    let guard = locks.lock(format!("order:{id}")).expire(LEASE).try_acquire().await;
    let guard = guard.expect("the lock is free");
    std::hint::black_box(id);
    guard.release().await.expect("the lock is held");
    "paid"
}

/// One variant of the route.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    app: Router,
    /// The body of each request.
    pub(crate) body: &'static [u8],
}

impl Variant {
    pub(crate) fn new(name: &'static str, app: Router) -> Self {
        Self { name, app, body: b"" }
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
