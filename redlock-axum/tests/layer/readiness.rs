//! Services behind the lock whose capacity is limited. A request that waits for its lock takes nothing of it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use axum::response::Response;
use http::{Method, Request};
use redlock_axum::test_util::TestLocks;
use redlock_axum::{LockKey, LockLayer, LockManager, LockPolicy, MemoryNode};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::buffer::Buffer;
use tower::limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer};
use tower::load_shed::LoadShed;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::front_ends::stage::Stage;
use crate::support::{eventually, held_by_another, hold, memory, request};

/// The path of a request is its key.
fn by_path(locks: &LockManager) -> LockLayer {
    let policy = LockPolicy::from_fn(|parts| LockKey::new(parts.uri.path()));
    LockLayer::new(locks, policy.wait_time(Duration::from_secs(60))).unwrap()
}

fn ok() -> impl Service<Request<Body>, Response = Response, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    service_fn(async |_| Ok(Response::default()))
}

/// Calls a service as axum does: a clone for each request, which is called when it is ready.
async fn call<S>(service: &S, path: &'static str) -> Result<u16, BoxError>
where
    S: Service<Request<Body>, Response = Response, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    start(service, path).await.unwrap()
}

fn start<S>(service: &S, path: &'static str) -> JoinHandle<Result<u16, BoxError>>
where
    S: Service<Request<Body>, Response = Response, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let response = service.clone().oneshot(request(Method::POST, path));
    tokio::spawn(async {
        let response = timeout(Duration::from_secs(10), response).await.expect("no answer");
        Ok(response.map_err(Into::into)?.status().as_u16())
    })
}

/// Lets more requests wait for `/1` than the service has places, and sends one for `/2`, which is free.
async fn a_free_lock_is_served_beside_waiters<S>(locked: S, node: MemoryNode)
where
    S: Service<Request<Body>, Response = Response, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let guard = held_by_another(&node, "/1").await;
    let waiters: Vec<_> = (0..5).map(|_| start(&locked, "/1")).collect();
    // Each of them has asked the service for a place by then, and waits.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(call(&locked, "/2").await.unwrap(), 200);
    waiters.iter().take(2).for_each(JoinHandle::abort);
    guard.release().await.unwrap();
    for waiter in waiters.into_iter().skip(2) {
        assert_eq!(waiter.await.unwrap().unwrap(), 200);
    }
    // No place has leaked.
    assert_eq!(call(&locked, "/1").await.unwrap(), 200);
}

#[tokio::test]
async fn waiters_take_no_place_of_a_concurrency_limit() {
    let (locks, node) = memory().await;
    let locked = by_path(&locks).layer(ConcurrencyLimit::new(ok(), 1));
    a_free_lock_is_served_beside_waiters(locked, node).await;
}

#[tokio::test]
async fn waiters_take_no_place_of_a_global_concurrency_limit() {
    let (locks, node) = memory().await;
    let locked = by_path(&locks).layer(GlobalConcurrencyLimitLayer::new(2).layer(ok()));
    a_free_lock_is_served_beside_waiters(locked, node).await;
}

#[tokio::test]
async fn waiters_take_no_place_of_a_buffer() {
    let (locks, node) = memory().await;
    let locked = by_path(&locks).layer(Buffer::new(ok(), 1));
    a_free_lock_is_served_beside_waiters(locked, node).await;
}

/// Waiters are no load. As the load that is shed counts the requests behind the lock alone.
#[tokio::test]
async fn waiters_are_no_load_of_a_limit_that_sheds_behind_the_lock() {
    let (locks, node) = memory().await;
    let locked = by_path(&locks).layer(LoadShed::new(ConcurrencyLimit::new(ok(), 1)));
    a_free_lock_is_served_beside_waiters(locked, node).await;
}

#[tokio::test]
async fn load_is_shed_behind_the_lock_by_the_requests_that_have_one() {
    let (locks, node) = memory().await;
    let stage = Stage::new();
    let inside = stage.clone();
    let service = service_fn(move |_: Request<Body>| {
        let stage = inside.clone();
        async move {
            stage.enter().await;
            Ok::<Response, Infallible>(Response::default())
        }
    });
    let locked = by_path(&locks).layer(LoadShed::new(ConcurrencyLimit::new(service, 1)));
    let first = start(&locked, "/1");
    stage.until_inside(1).await;
    assert!(call(&locked, "/2").await.unwrap_err().to_string().contains("overload"));
    eventually("its lock is free", || node.len() == 1).await;
    stage.leave(1);
    assert_eq!(first.await.unwrap().unwrap(), 200);
}

/// A `LoadShed` outside of the lock counts the waiters. A request that it refuses asks for no lock.
#[tokio::test]
async fn load_is_shed_outside_of_the_lock_before_the_lock_is_asked() {
    let (locks, node) = memory().await;
    let locked = by_path(&locks).layer(ok());
    let locked = LoadShed::new(ConcurrencyLimit::new(locked, 1));
    let guard = hold(&locks, "/1").await;
    let waiter = start(&locked, "/1");
    // Until the waiter has the place, another request gets it.
    while call(&locked, "/2").await.is_ok() {}
    assert_eq!(node.len(), 1);
    guard.release().await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap(), 200);
}

/// A service that is ready when the test says so.
struct ReadyWhen {
    ready: watch::Receiver<bool>,
    change: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Clone for ReadyWhen {
    fn clone(&self) -> Self {
        Self { ready: self.ready.clone(), change: None }
    }
}

impl Service<Request<Body>> for ReadyWhen {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let mut ready = self.ready.clone();
        let change = self.change.get_or_insert_with(|| {
            Box::pin(async move {
                ready.wait_for(|ready| *ready).await.unwrap();
            })
        });
        change.as_mut().poll(cx).map(Ok)
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(self.change.take().is_some() && *self.ready.borrow(), "called without being ready");
        ready(Ok(Response::default()))
    }
}

#[tokio::test]
async fn a_service_is_not_called_if_the_lock_is_lost_before_it_is_ready() {
    let test = TestLocks::new(1);
    let node = &test.nodes()[0];
    for detached in [false, true] {
        let (say, is_ready) = watch::channel(false);
        let policy = LockPolicy::new("k").expire(Duration::from_secs(3)).detached(detached);
        let inner = ReadyWhen { ready: is_ready, change: None };
        let locked = LockLayer::new(&test.manager(), policy).unwrap().layer(inner);
        let mut unused = locked.clone();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Service::<Request<Body>>::poll_ready(&mut unused, &mut cx).is_ready());
        let late = start(&locked, "/");
        eventually("the lock is held", || !node.is_empty()).await;
        eventually("the lock is lost", || node.is_empty()).await;
        say.send_replace(true);
        assert_eq!(late.await.unwrap().unwrap(), 503);
        assert_eq!(call(&locked, "/").await.unwrap(), 200);
    }
}
