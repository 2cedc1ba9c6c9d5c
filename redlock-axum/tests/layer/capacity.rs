//! Places of a service behind the lock. Nobody takes one before its lock is acquired, and nobody keeps one.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{Method, Request};
use redlock_axum::{LockKey, LockLayer, LockManager, LockPolicy};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::bodies::slow_body;
use crate::front_ends::stage::Stage;
use crate::support::{eventually, held_by_another, memory, request};

/// Locks the path of a request.
fn by_path() -> LockPolicy {
    LockPolicy::from_fn(|parts| LockKey::new(parts.uri.path())).wait_forever()
}

fn layer(locks: &LockManager, policy: LockPolicy) -> LockLayer {
    LockLayer::new(locks, policy).unwrap()
}

trait Locked:
    Service<Request<Body>, Response = Response, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S> Locked for S where
    S: Service<Request<Body>, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Returns a service with one place, whose requests enter the stage.
fn one_place(stage: &Stage) -> ConcurrencyLimit<impl Locked> {
    let stage = stage.clone();
    let enter = move |_| {
        let stage = stage.clone();
        async move {
            stage.enter().await;
            Ok(Response::default())
        }
    };
    GlobalConcurrencyLimitLayer::new(1).layer(service_fn(enter))
}

/// Sends a request in a task of its own.
fn start(service: &impl Locked, path: &str) -> JoinHandle<u16> {
    start_request(service, request(Method::POST, path))
}

fn start_request(service: &impl Locked, request: Request<Body>) -> JoinHandle<u16> {
    let service = service.clone();
    tokio::spawn(async move { service.oneshot(request).await.unwrap().status().as_u16() })
}

/// Waits for the status of a request that has its place and its lock, or gets them at once.
async fn served(request: JoinHandle<u16>) -> u16 {
    timeout(Duration::from_secs(30), request).await.expect("the request has no place").unwrap()
}

#[tokio::test]
async fn a_slow_upload_takes_no_place() {
    let (locks, _node) = memory().await;
    let stage = Stage::new();
    stage.leave(2);
    let service = layer(&locks, by_path()).layer(one_place(&stage));
    let (mut client, body) = slow_body(None);
    let upload = start_request(&service, Request::post("/1").body(body).unwrap());
    client.until_polled(1).await;
    assert_eq!(served(start(&service, "/2")).await, 200);
    assert!(!upload.is_finished());
    drop(client);
    assert_eq!(served(upload).await, 200);
}

/// The request has the outer lock when it waits for the inner one.
#[tokio::test]
async fn a_request_that_waits_for_the_second_of_two_locks_takes_no_place() {
    let (locks, node) = memory().await;
    let stage = Stage::new();
    stage.leave(2);
    let by_query = LockPolicy::from_fn(|parts| LockKey::new(parts.uri.query().unwrap()));
    let inner = layer(&locks, by_query.wait_forever()).layer(one_place(&stage));
    let service = layer(&locks, by_path()).layer(inner);
    let guard = held_by_another(&node, "article-1").await;
    let waiting = start(&service, "/1?article-1");
    eventually("the request has its outer lock", || node.time_to_live("/1").is_some()).await;
    assert_eq!(served(start(&service, "/2?article-2")).await, 200);
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    assert_eq!(served(waiting).await, 200);
}

/// axum asks a nested service for a place in each request. The request has its outer lock when it waits for the inner one.
#[tokio::test]
async fn a_request_that_waits_for_the_lock_of_a_nested_service_takes_no_place() {
    let (locks, node) = memory().await;
    let stage = Stage::new();
    stage.leave(2);
    let by_query = LockPolicy::from_fn(|parts| LockKey::new(parts.uri.query().unwrap()));
    let inner = layer(&locks, by_query.wait_forever()).layer(one_place(&stage));
    let app = Router::new().nest_service("/pay", inner).layer(layer(&locks, by_path()));
    let guard = held_by_another(&node, "article-1").await;
    let waiting = start(&app, "/pay/1?article-1");
    eventually("the request has its outer lock", || node.time_to_live("/pay/1").is_some()).await;
    assert_eq!(served(start(&app, "/pay/2?article-2")).await, 200);
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    assert_eq!(served(waiting).await, 200);
}

/// A load balancer asks all its services whether they are ready, and calls one of them.
#[tokio::test]
async fn services_that_are_ready_and_never_called_take_no_place() {
    let (locks, _node) = memory().await;
    let stage = Stage::new();
    stage.leave(1);
    let service = layer(&locks, by_path()).layer(one_place(&stage));
    let mut ready = [service.clone(), service.clone(), service.clone()];
    for service in &mut ready {
        ServiceExt::<Request<Body>>::ready(service).await.unwrap();
    }
    assert_eq!(served(start(&service, "/1")).await, 200);
    drop(ready);
}

#[tokio::test]
async fn callers_that_leave_before_they_have_a_place_leave_neither_a_lock_nor_a_place_behind() {
    let (locks, node) = memory().await;
    let stage = Stage::new();
    let service = layer(&locks, by_path()).layer(one_place(&stage));
    let inside = start(&service, "/1");
    stage.until_inside(1).await;
    for _ in 0..3 {
        // One waits for a place, and the other one for the lock.
        let leaving = [start(&service, "/2"), start(&service, "/1")];
        eventually("the request has its lock", || node.time_to_live("/2").is_some()).await;
        for request in leaving {
            request.abort();
            assert!(request.await.unwrap_err().is_cancelled());
        }
        eventually("the lock is free", || node.time_to_live("/2").is_none()).await;
    }
    stage.leave(1);
    assert_eq!(served(inside).await, 200);
    for path in ["/1", "/2"] {
        stage.leave(1);
        assert_eq!(served(start(&service, path)).await, 200);
    }
    assert!(node.is_empty());
}

#[tokio::test]
async fn a_detached_request_whose_client_leaves_gets_its_place_later() {
    let (locks, node) = memory().await;
    let stage = Stage::new();
    let service = layer(&locks, by_path().detached(true)).layer(one_place(&stage));
    let inside = start(&service, "/1");
    stage.until_inside(1).await;
    let leaving = start(&service, "/2");
    eventually("the request has its lock", || node.time_to_live("/2").is_some()).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    stage.leave(1);
    assert_eq!(served(inside).await, 200);
    stage.until_inside(1).await;
    assert!(node.time_to_live("/2").is_some());
    stage.leave(2);
    eventually("the lock is free", || node.is_empty()).await;
    assert_eq!(served(start(&service, "/2")).await, 200);
}
