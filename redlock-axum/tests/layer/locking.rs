//! Which requests a layer locks, and by which manager.

use axum::Router;
use axum::routing::post as on_post;
use http::Method;
use redlock_axum::{LockLayer, LockManager, LocksLayer};

use super::app;
use crate::support::{hold, memory, post, send};

#[tokio::test]
async fn the_manager_of_the_layer_overrides_the_installed_manager() {
    let (locks, _node) = memory().await;
    let app = Router::new()
        .route("/", on_post(|| async {}).route_layer(LockLayer::new("k").manager(locks.clone())))
        .layer(LocksLayer::new(&LockManager::in_memory()));

    let _guard = hold(&locks, "k").await;
    assert_eq!(post(&app, "/").await, 409);
}

#[tokio::test]
async fn only_the_named_methods_are_locked() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").methods([Method::POST]);
    let app = app(layer, &locks, &node);

    let _guard = hold(&locks, "order:42").await;
    assert_eq!(post(&app, "/orders/42/pay").await, 409);
    assert_eq!(send(&app, Method::GET, "/orders/42/pay").await.status(), 200);
}

/// No work without the lock: axum serves HEAD with the handler for GET.
#[tokio::test]
async fn head_is_locked_where_get_is_locked() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").methods([Method::GET]);
    let app = app(layer, &locks, &node);

    let _guard = hold(&locks, "order:42").await;
    assert_eq!(send(&app, Method::HEAD, "/orders/42/pay").await.status(), 409);
}
