//! The options of a policy and of its table.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::post as on_post;
use http::{Method, StatusCode};
use http_body_util::Full;
use redlock_axum::{HoldUntil, LockKey, LockPolicy, LockRejection};
use tower::Layer;

use super::{ok, orders};
use crate::support::{OnlyWhenReady, hold, memory, post, send, table, text};

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
        .layer(table(
            &locks,
            [
                LockPolicy::new("lease").route("/lease").expire(Duration::from_secs(90)),
                LockPolicy::new("status").route("/status").contended_status(StatusCode::LOCKED),
                LockPolicy::new("retry").route("/retry").retry_after_max(Duration::from_secs(20)),
                LockPolicy::new("wait").route("/wait").wait_time(Duration::from_secs(30)),
                LockPolicy::new("body").route("/body").hold_until(HoldUntil::EndOfBody),
            ],
        ));

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
async fn a_table_has_its_own_responses() {
    let (locks, _node) = memory().await;
    let table = table(&locks, [LockPolicy::new("k").route("/")])
        .on_reject(|rejection: LockRejection| (StatusCode::IM_A_TEAPOT, rejection.to_string()));
    let app = Router::new().route("/", on_post(ok)).layer(table);

    let _guard = hold(&locks, "k").await;
    let response = send(&app, Method::POST, "/").await;
    assert_eq!(response.status(), 418);
    assert!(text(response).await.contains("another request is being processed"));
}

/// tower's contract: a service may be called only after `poll_ready` of the same instance.
#[tokio::test]
async fn only_the_instance_that_was_polled_ready_is_called() {
    let (locks, _node) = memory().await;
    let table = table(&locks, [LockPolicy::new("k").route("/").methods([Method::POST])]);
    let app = Router::new().route_service("/", table.layer(OnlyWhenReady::default()));
    assert_eq!(post(&app, "/").await, 200);
    assert_eq!(send(&app, Method::GET, "/").await.status(), 200);
}

#[test]
fn a_policy_displays_its_methods_and_its_route_or_key() {
    let policy = orders().methods([Method::GET, Method::POST]);
    assert_eq!(policy.to_string(), "GET, POST /orders/{id}");
    assert_eq!(LockPolicy::new("order:{id}").to_string(), "order:{id}");
    assert_eq!(LockPolicy::from_fn(|_| LockKey::new("k")).to_string(), "from_fn");
}
