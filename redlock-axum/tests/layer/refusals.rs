//! The responses to clients that do not get the lock.

use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::post as on_post;
use http::{Method, StatusCode};
use redlock_axum::{LockPolicy, LockRejection, OnLost};
use redlock_logs::Logs;

use super::app;
use crate::support::{hold, layer, memory, post, send, text};

#[tokio::test]
async fn a_contended_request_is_answered_with_the_chosen_status() {
    let (locks, node) = memory().await;
    let policy = LockPolicy::new("order:{id}").contended_status(StatusCode::LOCKED);
    let app = app(policy, &locks, &node);

    let _guard = hold(&locks, "order:42").await;
    let response = send(&app, Method::POST, "/orders/42/pay").await;
    assert_eq!(response.status(), 423);
    assert!(text(response).await.contains(r#""title":"Locked","status":423"#));
}

/// A renewed lock has a lease of 30 s, but most holders release it after milliseconds.
#[tokio::test]
async fn retry_after_is_at_most_5_seconds_or_the_chosen_time() {
    let (locks, node) = memory().await;
    let policy = LockPolicy::new("order:{id}");
    let _guard = hold(&locks, "order:42").await;
    for (policy, seconds) in
        [(policy.clone(), "5"), (policy.retry_after_max(Duration::from_secs(9)), "9")]
    {
        let response = send(&app(policy, &locks, &node), Method::POST, "/orders/42/pay").await;
        assert_eq!(response.headers()["retry-after"], seconds);
    }
}

#[tokio::test]
async fn the_application_can_build_the_response_to_a_refusal() {
    let (locks, _node) = memory().await;
    let logs = Logs::collect();
    let app = |template| {
        let layer = layer(&locks, template).on_reject(|rejection: LockRejection| {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{:?}", rejection.kind()))
        });
        Router::new().route("/orders/{id}/pay", on_post(|| async {}).route_layer(layer))
    };
    let _held = hold(&locks, "order:42").await;

    let response = send(&app("order:{id}"), Method::POST, "/orders/42/pay").await;
    assert_eq!(response.status(), 503);
    assert_eq!(text(response).await, "Contended");

    let response = send(&app("order:{idd}"), Method::POST, "/orders/42/pay").await;
    assert_eq!(text(response).await, "Misconfigured");
    assert_eq!(
        logs.count("ERROR", "{idd}"),
        1,
        "logged although the application builds the response"
    );
}

#[tokio::test]
async fn the_log_line_of_a_refusal_names_the_lock_and_the_route() {
    let (locks, _node) = memory().await;
    let logs = Logs::collect();
    let refused = layer(&locks, "order:{id}");
    let app = Router::new()
        .route("/carts/{cart}", on_post(|| async {}))
        .route("/orders/{id}", on_post(|| async {}))
        .route_layer(refused.clone())
        .route_layer(refused);
    assert_eq!(post(&app, "/carts/7").await, 500);
    assert_eq!(logs.count("ERROR", "lock=\"order:{id}\" route=\"/carts/{cart}\""), 1);
    assert_eq!(post(&app, "/orders/7").await, 500);
    assert_eq!(logs.count("ERROR", "lock=\"order:{id}\" route=\"/orders/{id}\""), 1);
    locks.shutdown().await;
    assert_eq!(post(&app, "/orders/7").await, 503);
    assert_eq!(logs.count("WARN", "lock=\"order:{id}\" route=\"/orders/{id}\""), 1);
}

#[tokio::test]
async fn the_application_can_build_the_response_to_a_lost_lock() {
    let (locks, _node) = memory().await;
    let policy = LockPolicy::new("k").expire(Duration::from_millis(400)).on_lost(OnLost::Abort);
    let layer = layer(&locks, policy)
        .on_reject(|rejection| format!("{:?}", rejection.kind()).into_response());
    let app = Router::new().route("/", on_post(pending::<()>)).layer(layer);
    assert_eq!(text(send(&app, Method::POST, "/").await).await, "Lost");
}
