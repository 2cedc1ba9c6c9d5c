//! Services that an application makes itself, and the services inside of them.

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::post_service;
use http::Method;
use redlock_axum::{LockLayer, LockPolicies, LockPolicy, LockService, PolicyService};
use tower::ServiceExt;

use crate::support::{OnlyWhenReady, hold, memory, post, request};

fn table() -> LockPolicies {
    LockPolicies::new([LockPolicy::new("/orders/{id}", "order:{id:u64}")]).unwrap()
}

#[test]
fn a_lock_service_gives_access_to_its_inner_service() {
    let mut service = LockService::new("inner".to_owned(), LockLayer::new("k"));
    assert_eq!(service.get_ref(), "inner");
    service.get_mut().push_str(" service");
    assert_eq!(service.clone().into_inner(), "inner service");
}

#[test]
fn a_policy_service_gives_access_to_its_inner_service() {
    let mut service = PolicyService::new("inner".to_owned(), table());
    assert_eq!(service.get_ref(), "inner");
    service.get_mut().push_str(" service");
    assert_eq!(service.clone().into_inner(), "inner service");
}

#[tokio::test]
async fn a_lock_service_locks_without_a_router() {
    let (locks, _node) = memory().await;
    let layer = LockLayer::new("import").manager(locks.clone());
    let service = LockService::new(OnlyWhenReady::default(), layer);
    let call = || service.clone().oneshot(request(Method::POST, "/"));
    assert_eq!(call().await.into_response().status(), 200);
    let _guard = hold(&locks, "import").await;
    assert_eq!(call().await.into_response().status(), 409);
}

#[tokio::test]
async fn a_policy_service_locks_a_route() {
    let (locks, _node) = memory().await;
    let service = PolicyService::new(OnlyWhenReady::default(), table().manager(locks.clone()));
    let app = Router::new().route("/orders/{id}", post_service(service));
    assert_eq!(post(&app, "/orders/42").await, 200);
    let _guard = hold(&locks, "order:42").await;
    assert_eq!(post(&app, "/orders/42").await, 409);
    assert_eq!(post(&app, "/orders/43").await, 200);
}
