//! Tests of locked handlers. They take no time, although the leases are seconds long.

#![allow(clippy::unwrap_used, reason = "tests")]

mod shop;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use redlock_axum::test_util::TestLocks;
use tower::ServiceExt;

async fn send(app: &Router, path: &str) -> Response {
    let request = Request::post(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn an_order_is_refused_with_409_while_another_copy_has_its_lock() {
    let test = TestLocks::new(1);
    let app = shop::app(test.manager());
    let other_copy = test.builder().connect().await.unwrap();

    let lease = Duration::from_secs(10);
    let guard = other_copy.lock("order:42").expire(lease).acquire().await.unwrap();
    assert_eq!(send(&app, "/orders/43/pay").await.status(), 200);
    assert_eq!(send(&app, "/orders/42/pay").await.status(), 409);

    guard.keep_until_expiry(); // as if the other copy had crashed
    test.clock().advance(Duration::from_secs(7)).await;
    let response = send(&app, "/orders/42/pay").await;
    assert_eq!(response.status(), 409);
    assert_eq!(response.headers()["retry-after"], "3");

    test.clock().advance(Duration::from_secs(3)).await;
    assert_eq!(send(&app, "/orders/42/pay").await.status(), 200);
}

#[tokio::test]
async fn no_order_is_paid_while_most_nodes_are_down() {
    let test = TestLocks::new(3);
    let app = shop::app(test.manager());

    test.nodes()[0].fail(); // refuses every operation
    assert_eq!(send(&app, "/orders/42/pay").await.status(), 200);
    test.nodes()[1].freeze(); // never answers
    assert_eq!(send(&app, "/orders/42/pay").await.status(), 503);
    test.nodes()[1].recover();
    assert_eq!(send(&app, "/orders/42/pay").await.status(), 200);
}

#[tokio::test]
async fn a_report_is_stopped_with_503_when_its_lock_is_lost() {
    let test = TestLocks::new(1);
    let app = shop::app(test.manager());

    let report = tokio::spawn(async move { send(&app, "/report").await });
    test.clock().advance(Duration::from_secs(1)).await;
    test.nodes()[0].forget(); // as a Redis that is restarted without its data
    assert_eq!(report.await.unwrap().status(), 503);
}
