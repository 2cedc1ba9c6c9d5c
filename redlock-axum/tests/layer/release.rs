//! The lock goes, however the request ends.

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use axum::routing::post as on_post;
use axum::{Extension, Router};
use http::{Method, Request, StatusCode};
use redlock_axum::LockLayer;
use redlock_logs::Logs;
use tower::{Layer, ServiceExt, service_fn};

use crate::poll_once;
use crate::support::{eventually, hold, memory, post, request, send, text};

#[tokio::test]
async fn the_lock_is_released_when_the_inner_service_fails() {
    let (locks, node) = memory().await;
    let failing = service_fn(async |_: Request<Body>| Err::<Response, _>("broken"));
    let service = LockLayer::new("k").manager(locks).layer(failing);

    let result = service.oneshot(request(Method::POST, "/")).await;
    assert_eq!(node.len(), 0);
    assert_eq!(result.unwrap_err(), "broken");
}

#[tokio::test]
async fn the_lock_is_released_when_the_handler_answers_with_an_error() {
    let (locks, node) = memory().await;
    let app = Router::new()
        .route(
            "/",
            on_post(|| async { Err::<(), _>(StatusCode::IM_A_TEAPOT) })
                .route_layer(LockLayer::new("k")),
        )
        .layer(Extension(locks));

    assert_eq!(post(&app, "/").await, 418);
    assert_eq!(node.len(), 0);
}

#[tokio::test]
async fn the_lock_is_released_when_the_handler_panics() {
    let (locks, node) = memory().await;
    let seen = node.clone();
    let handler = async move || -> &'static str {
        tokio::task::yield_now().await;
        panic!("{} key is held", seen.len());
    };
    let app = Router::new()
        .route("/", on_post(handler).route_layer(LockLayer::new("k")))
        .layer(Extension(locks));

    let outcome = tokio::spawn(async move { post(&app, "/").await }).await;
    let panic = outcome.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "1 key is held");
    eventually("no key is left", || node.is_empty()).await;
}

/// A client that goes away, a timeout around the layer: invariant 6. rslock leaves the key.
#[tokio::test]
async fn a_request_dropped_at_any_point_leaves_nothing_behind() {
    let mut dropped_with_a_key = 0;
    let mut polls = 0;
    loop {
        let (locks, node) = memory().await;
        let handler = async || {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        };
        let app = Router::new()
            .route("/", on_post(handler).route_layer(LockLayer::new("k")))
            .layer(Extension(locks.clone()));

        let mut finished = false;
        {
            let mut future = pin!(send(&app, Method::POST, "/"));
            for _ in 0..polls {
                if poll_once(&mut future).is_ready() {
                    finished = true;
                    break;
                }
                tokio::task::yield_now().await;
            }
            dropped_with_a_key += usize::from(node.len() == 1);
        }
        eventually("no key is left", || node.is_empty()).await;
        hold(&locks, "k").await.release().await.unwrap();
        if finished {
            break;
        }
        polls += 1;
        assert!(polls < 1000, "the request never finishes");
    }
    assert!(dropped_with_a_key >= 3, "the test never dropped a request that held its lock");
}

/// lock4j's holder deletes the next one's lock: invariant 2.
#[tokio::test]
async fn a_handler_that_outlives_its_lease_keeps_its_response_and_leaves_the_next_lock_alone() {
    let (locks, node) = memory().await;
    let logs = Logs::collect();
    let next = locks.clone();
    let seen = node.clone();
    let handler = async move || {
        eventually("the lease runs out", || seen.is_empty()).await;
        // Held on beyond this handler.
        std::mem::forget(hold(&next, "k").await);
        "done"
    };
    let layer = LockLayer::new("k").expire(Duration::from_millis(100));
    let app = Router::new().route("/", on_post(handler).route_layer(layer)).layer(Extension(locks));

    let response = send(&app, Method::POST, "/").await;
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "done");
    assert_eq!(node.len(), 1);
    assert_eq!(logs.count("WARN", "not released in order"), 1);
}
