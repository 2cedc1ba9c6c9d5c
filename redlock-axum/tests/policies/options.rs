//! The options of a policy and of its table.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::post as on_post;
use http::{Method, StatusCode};
use http_body_util::Full;
use redlock_axum::{HoldUntil, LockPolicy, LockRejection, LocksLayer};
use tower::Layer;

use super::{ok, orders, policies};
use crate::support::{OnlyWhenReady, hold, memory, post, send, text};

#[tokio::test]
async fn a_policy_applies_its_options() {
    let (locks, node) = memory().await;
    let app = Router::new()
        .route(
            "/lease",
            on_post({
                let node = node.clone();
                async move || node.time_to_live("lease").unwrap().as_secs().to_string()
            }),
        )
        .route("/status", on_post(ok))
        .route("/retry", on_post(ok))
        .route("/wait", on_post(ok))
        .route("/body", on_post(|| async { Body::new(Full::new(Bytes::from("body"))) }))
        .layer(policies([
            LockPolicy::new("/lease", "lease").expire(Duration::from_secs(90)),
            LockPolicy::new("/status", "status").contended_status(StatusCode::LOCKED),
            LockPolicy::new("/retry", "retry").retry_after_max(Duration::from_secs(20)),
            LockPolicy::new("/wait", "wait").wait_time(Duration::from_secs(30)),
            LockPolicy::new("/body", "body").hold_until(HoldUntil::EndOfBody),
        ]))
        .layer(LocksLayer::new(&locks));

    assert_eq!(text(send(&app, Method::POST, "/lease").await).await, "89");

    let _status = hold(&locks, "status").await;
    assert_eq!(post(&app, "/status").await, 423);

    let _retry = hold(&locks, "retry").await;
    let response = send(&app, Method::POST, "/retry").await;
    assert_eq!(response.headers()["retry-after"], "20");

    let wait = hold(&locks, "wait").await;
    let (waited, released) = tokio::join!(post(&app, "/wait"), wait.release());
    released.unwrap();
    assert_eq!(waited, 200);

    let response = send(&app, Method::POST, "/body").await;
    assert!(node.time_to_live("body").is_some());
    assert_eq!(text(response).await, "body");
    assert!(node.time_to_live("body").is_none());
}

#[tokio::test]
async fn a_table_has_its_own_manager_and_responses() {
    let (locks, _node) = memory().await;
    let table = policies([LockPolicy::new("/", "k")])
        .manager(locks.clone())
        .on_reject(|rejection: LockRejection| (StatusCode::IM_A_TEAPOT, rejection.to_string()));
    let app = Router::new().route("/", on_post(ok)).layer(table);

    let _guard = hold(&locks, "k").await;
    let response = send(&app, Method::POST, "/").await;
    assert_eq!(response.status(), 418);
    assert!(text(response).await.contains("another request is being processed"));
}

#[tokio::test]
async fn a_table_without_a_manager_refuses() {
    let app = Router::new().route("/", on_post(ok)).layer(policies([LockPolicy::new("/", "k")]));
    assert_eq!(post(&app, "/").await, 500);
}

/// tower's contract: a service may be called only after `poll_ready` of the same instance.
#[tokio::test]
async fn only_the_instance_that_was_polled_ready_is_called() {
    let (locks, _node) = memory().await;
    let table = policies([LockPolicy::new("/", "k").methods([Method::POST])]);
    let app = Router::new()
        .route_service("/", table.layer(OnlyWhenReady::default()))
        .layer(LocksLayer::new(&locks));
    assert_eq!(post(&app, "/").await, 200);
    assert_eq!(send(&app, Method::GET, "/").await.status(), 200);
}

#[test]
fn a_policy_displays_its_methods_and_route() {
    let policy = orders().methods([Method::GET, Method::POST]);
    assert_eq!(policy.to_string(), "GET,POST /orders/{id}");
    assert_eq!((policy.route(), policy.key()), ("/orders/{id}", "order:{id:u64}"));
}
