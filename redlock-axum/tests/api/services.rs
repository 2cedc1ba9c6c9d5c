//! Services that an application makes itself, and the services inside of them.

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::post_service;
use http::Method;
use redlock_axum::{LockPolicy, LockService};
use tower::ServiceExt;

use crate::support::{OnlyWhenReady, hold, layer, memory, post, request, table};

#[tokio::test]
async fn a_lock_service_gives_access_to_its_inner_service() {
    let (locks, _node) = memory().await;
    let mut service = LockService::new("inner".to_owned(), layer(&locks, "k"));
    assert_eq!(service.get_ref(), "inner");
    service.get_mut().push_str(" service");
    assert_eq!(service.clone().into_inner(), "inner service");
}

#[tokio::test]
async fn a_lock_service_locks_without_a_router() {
    let (locks, _node) = memory().await;
    let service = LockService::new(OnlyWhenReady::default(), layer(&locks, "import"));
    let call = || service.clone().oneshot(request(Method::POST, "/"));
    assert_eq!(call().await.into_response().status(), 200);
    let _guard = hold(&locks, "import").await;
    assert_eq!(call().await.into_response().status(), 409);
}

#[tokio::test]
async fn a_lock_service_with_a_table_locks_a_route() {
    let (locks, _node) = memory().await;
    let policy = LockPolicy::new("order:{id:u64}").route("/orders/{id}");
    let service = LockService::new(OnlyWhenReady::default(), table(&locks, [policy]));
    let app = Router::new().route("/orders/{id}", post_service(service));
    assert_eq!(post(&app, "/orders/42").await, 200);
    let _guard = hold(&locks, "order:42").await;
    assert_eq!(post(&app, "/orders/42").await, 409);
    assert_eq!(post(&app, "/orders/43").await, 200);
}
