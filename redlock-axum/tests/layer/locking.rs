//! Which requests wait for whom, and for how long they hold the lock.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::routing::post as on_post;
use axum::{Extension, Router};
use http::Method;
use redlock_axum::{HeldLock, LockLayer, LockManager, LockPolicies, LockPolicy};

use crate::support::{hold, memory, post, send, text};
use crate::{app, poll_once};

#[tokio::test]
async fn the_handler_runs_under_the_lock_and_the_lock_is_free_when_the_response_leaves() {
    let (locks, node) = memory().await;
    let app = app(LockLayer::new("order:{id}"), locks, &node);

    let response = send(&app, Method::POST, "/orders/42/pay").await;
    assert_eq!(node.len(), 0);
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "1");
}

/// klock runs the body without the lock when the wait is over: invariant 1.
#[tokio::test]
async fn a_contended_request_is_refused_and_its_handler_never_called() {
    let (locks, _node) = memory().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = async move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let app = Router::new()
        .route("/orders/{id}", on_post(handler).route_layer(LockLayer::new("order:{id}")))
        .layer(Extension(locks.clone()));

    let guard = hold(&locks, "order:1").await;
    assert_eq!(post(&app, "/orders/1").await, 409);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    assert_eq!(post(&app, "/orders/2").await, 200);

    guard.release().await.unwrap();
    assert_eq!(post(&app, "/orders/1").await, 200);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_given_manager_goes_before_the_installed_one() {
    let (locks, _node) = memory().await;
    let app = Router::new()
        .route("/", on_post(|| async {}).route_layer(LockLayer::new("k").manager(locks.clone())))
        .layer(Extension(LockManager::in_memory()));

    let _guard = hold(&locks, "k").await;
    assert_eq!(post(&app, "/").await, 409);
}

#[tokio::test]
async fn only_the_named_methods_are_locked() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").methods([Method::POST]);
    let app = app(layer, locks.clone(), &node);

    let _guard = hold(&locks, "order:42").await;
    assert_eq!(post(&app, "/orders/42/pay").await, 409);
    assert_eq!(send(&app, Method::GET, "/orders/42/pay").await.status(), 200);
}

/// axum serves HEAD with the handler for GET: invariant 1.
#[tokio::test]
async fn head_is_locked_where_get_is() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").methods([Method::GET]);
    let app = app(layer, locks.clone(), &node);

    let _guard = hold(&locks, "order:42").await;
    assert_eq!(send(&app, Method::HEAD, "/orders/42/pay").await.status(), 409);
}

#[tokio::test]
async fn a_waiting_request_is_served_once_the_lock_is_free() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").wait_time(Duration::from_secs(30));
    let app = app(layer, locks.clone(), &node);

    let guard = hold(&locks, "order:42").await;
    let mut waiting = pin!(send(&app, Method::POST, "/orders/42/pay"));
    assert!(poll_once(&mut waiting).is_pending());
    guard.release().await.unwrap();
    assert_eq!(waiting.await.status(), 200);
}

#[tokio::test]
async fn a_waiting_request_is_refused_when_its_time_is_over() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").wait_time(Duration::from_millis(50));
    let app = app(layer, locks.clone(), &node);

    let _guard = hold(&locks, "order:42").await;
    let start = std::time::Instant::now();
    assert_eq!(post(&app, "/orders/42/pay").await, 409);
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn the_lease_is_what_was_asked_for() {
    let (locks, node) = memory().await;
    let lease = async |layer: LockLayer| {
        let seen = node.clone();
        let handler = async move || seen.time_to_live("k").unwrap().as_millis().to_string();
        let app =
            Router::new().route("/", on_post(handler).route_layer(layer.manager(locks.clone())));
        let millis = text(send(&app, Method::POST, "/").await).await;
        millis.parse::<u64>().unwrap()
    };

    let default = lease(LockLayer::new("k")).await;
    assert!((4000..=5000).contains(&default), "{default}");
    let chosen = lease(LockLayer::new("k").expire(Duration::from_secs(90))).await;
    assert!((89_000..=90_000).contains(&chosen), "{chosen}");
}

#[tokio::test]
async fn a_renewed_lease_outlives_its_first_time() {
    let (locks, node) = memory().await;
    let seen = node.clone();
    let expire = Duration::from_millis(300);
    let handler = async move || {
        tokio::time::sleep(3 * expire).await;
        seen.len().to_string()
    };
    let layer = LockLayer::new("k").expire(expire).renew();
    let app = Router::new().route("/", on_post(handler).route_layer(layer)).layer(Extension(locks));

    assert_eq!(text(send(&app, Method::POST, "/").await).await, "1");
    assert_eq!(node.len(), 0);
}

#[tokio::test]
async fn the_handler_finds_its_lock_behind_a_layer_and_behind_a_policy() {
    async fn look(lock: HeldLock) -> String {
        format!("{} {}", lock.key(), lock.is_valid())
    }

    let policies = LockPolicies::new([LockPolicy::new("/policy/{id}", "order:{id}")]).unwrap();
    let app = Router::new()
        .route("/layer/{id}", on_post(look).route_layer(LockLayer::new("order:{id}")))
        .route("/policy/{id}", on_post(look))
        .route("/unlocked", on_post(look))
        .layer(policies)
        .layer(Extension(LockManager::in_memory()));
    for path in ["/layer/42", "/policy/42"] {
        assert_eq!(text(send(&app, Method::POST, path).await).await, "order:42 true", "{path}");
    }
    assert_eq!(post(&app, "/unlocked").await, 500);
}
