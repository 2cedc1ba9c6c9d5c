//! The warning of requests that take locks in different orders, through each front end.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post as on_post;
use redlock_axum::{LockError, LockManager, LockPolicy, redis_lock};
use redlock_logs::Logs;

use crate::support::{app, layer, memory, post};

const CIRCLE: &str = "requests take locks in different orders";
const MINUTE: Duration = Duration::from_secs(60);

fn policy(key: &str) -> LockPolicy {
    LockPolicy::new(key).wait_time(MINUTE)
}

/// Returns a route under the locks of two layers, the outer one first.
fn under(locks: &LockManager, route: &str, [outer, inner]: [LockPolicy; 2]) -> Router<LockManager> {
    let router = Router::new().route(route, on_post(|| async {}));
    router.route_layer(layer(locks, inner)).route_layer(layer(locks, outer))
}

/// Returns the only warning.
fn warning(logs: &Logs) -> String {
    assert_eq!(logs.count("WARN", CIRCLE), 1, "{:?}", logs.lines());
    logs.lines().into_iter().find(|line| line.contains(CIRCLE)).unwrap()
}

#[redis_lock(key("a"), manager = locks, wait_time = 60)]
async fn inner_a(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key("b"), manager = locks, wait_time = 60)]
async fn inner_b(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key("a"), manager = locks, wait_time = 60)]
async fn outer_a(locks: &LockManager) -> Result<(), LockError> {
    inner_b(locks).await
}

#[redis_lock(key("b"), manager = locks, wait_time = 60)]
async fn outer_b(locks: &LockManager) -> Result<(), LockError> {
    inner_a(locks).await
}

#[tokio::test]
async fn two_functions_are_named() {
    let logs = Logs::collect().expect_lock_order();
    let (locks, _node) = memory().await;
    outer_a(&locks).await.unwrap();
    assert_eq!(logs.count("WARN", CIRCLE), 0);
    outer_b(&locks).await.unwrap();
    let warning = warning(&logs);
    for edge in ["b then a at the function ", "a then b at the function "] {
        assert!(warning.contains(edge), "{warning}");
    }
    for function in ["lock_order::inner_a", "lock_order::inner_b"] {
        assert!(warning.contains(function), "{warning}");
    }
}

#[tokio::test]
async fn two_routes_are_named() {
    let logs = Logs::collect().expect_lock_order();
    let (locks, _node) = memory().await;
    let routes = under(&locks, "/first/{id}", ["a:{id}", "b:{id}"].map(policy));
    let routes = routes.merge(under(&locks, "/second/{id}", ["b:{id}", "a:{id}"].map(policy)));
    let app = app(routes, &locks);
    for _ in 0..2 {
        assert_eq!(post(&app, "/first/1").await, 200);
    }
    assert_eq!(logs.count("WARN", CIRCLE), 0);
    for _ in 0..2 {
        assert_eq!(post(&app, "/second/2").await, 200);
    }
    let warning = warning(&logs);
    for edge in [
        "b:{id} then a:{id} at the route POST /second/{id}",
        "a:{id} then b:{id} at the route POST /first/{id}",
    ] {
        assert!(warning.contains(edge), "{warning}");
    }
}

/// The layer takes its lock before the handler does.
#[tokio::test]
async fn a_circle_through_a_layer_and_the_attribute_is_found() {
    #[redis_lock(key("b"), wait_time = 60)]
    async fn handler() {}

    async fn other(State(locks): State<LockManager>) {
        let request = locks.lock("b").named("b").wait_time(MINUTE);
        let inner = locks.lock("a").named("a").wait_time(MINUTE);
        let work = async |_| drop(inner.acquire().await.unwrap());
        request.run(work).await.unwrap();
    }

    let logs = Logs::collect().expect_lock_order();
    let (locks, _node) = memory().await;
    let routes = Router::new()
        .route("/locked", on_post(handler).layer(layer(&locks, policy("a"))))
        .route("/other", on_post(other));
    let app = app(routes, &locks);
    assert_eq!(post(&app, "/locked").await, 200);
    assert_eq!(logs.count("WARN", CIRCLE), 0);
    assert_eq!(post(&app, "/other").await, 200);
    let warning = warning(&logs);
    assert!(warning.contains("a then b at the function "), "{warning}");
    assert!(warning.contains("lock_order.rs:"), "{warning}");
}

/// Without a `wait_time`, a front end asks once, and nobody waits.
#[tokio::test]
async fn handlers_that_do_not_wait_are_no_warning() {
    let logs = Logs::collect();
    let (locks, _node) = memory().await;
    let routes = under(&locks, "/ab", ["a", "b"].map(LockPolicy::new));
    let routes = routes.merge(under(&locks, "/ba", ["b", "a"].map(LockPolicy::new)));
    let app = app(routes, &locks);
    for path in ["/ab", "/ba"] {
        assert_eq!(post(&app, path).await, 200);
    }
    assert_eq!(logs.count("WARN", ""), 0, "{:?}", logs.lines());
}
