//! Which requests a layer locks.

use axum::Router;
use axum::routing::any;
use http::Method;
use redlock_axum::{LockManager, LockPolicy, ScopeLayer};

use super::app;
use crate::support::{hold, layer, memory, post, send};

#[tokio::test]
async fn a_layer_uses_its_own_manager_and_not_the_installed_one() {
    let (locks, _node) = memory().await;
    let app = Router::new()
        .route("/", any(|| async {}))
        .route_layer(layer(&locks, "k"))
        .layer(ScopeLayer::new(&LockManager::in_memory()));

    let _guard = hold(&locks, "k").await;
    assert_eq!(post(&app, "/").await, 409);
}

#[tokio::test]
async fn only_the_named_methods_are_locked() {
    let (locks, node) = memory().await;
    let app = app(LockPolicy::new("order:{id}").methods([Method::POST]), &locks, &node);

    let _guard = hold(&locks, "order:42").await;
    assert_eq!(post(&app, "/orders/42/pay").await, 409);
    assert_eq!(send(&app, Method::GET, "/orders/42/pay").await.status(), 200);
}

/// No work without the lock: axum serves HEAD with the handler for GET.
#[tokio::test]
async fn head_is_locked_where_get_is_locked() {
    let (locks, node) = memory().await;
    let app = app(LockPolicy::new("order:{id}").methods([Method::GET]), &locks, &node);

    let _guard = hold(&locks, "order:42").await;
    assert_eq!(send(&app, Method::HEAD, "/orders/42/pay").await.status(), 409);
}

#[tokio::test]
async fn a_policy_with_a_route_locks_only_this_route() {
    let (locks, _node) = memory().await;
    let app = Router::new()
        .route("/orders/{id}", any(|| async {}))
        .route("/other/{id}", any(|| async {}))
        .route_layer(layer(&locks, LockPolicy::new("k:{id}").route("/orders/{id}")));

    let _guard = hold(&locks, "k:7").await;
    assert_eq!(post(&app, "/orders/7").await, 409);
    assert_eq!(post(&app, "/other/7").await, 200);
}
