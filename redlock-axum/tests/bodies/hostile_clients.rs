//! Clients that send their bodies slowly, in part or never, so that other clients get no lock or no memory.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::routing::{MethodRouter, post as on_post};
use axum::{Extension, Router};
use http_body_util::BodyExt;
use redlock_axum::test_util::TestLocks;
use redlock_axum::{
    BodyMode, HoldUntil, LockManager, LockManagerBuilder, LockPolicy, MemoryNode, redis_lock,
};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use super::{order, slow_body, start, upload};
use crate::front_ends::stage::Stage;
use crate::support::{answer, app, held_by_another, hold, layer, memory};

fn on(node: &MemoryNode) -> LockManagerBuilder {
    LockManager::builder().memory_node(node)
}

fn counting() -> MethodRouter {
    on_post(|body: Bytes| async move { body.len().to_string() })
}

async fn panicking() {
    panic!("the panic of this test")
}

/// Returns an application whose handler for `POST /` is locked by this policy.
fn locked(handler: MethodRouter, locks: &LockManager, policy: LockPolicy) -> Router {
    Router::new().route("/", handler.route_layer(layer(locks, policy)))
}

/// Two copies of a body of 60 bytes do not fit into the buffers.
#[tokio::test]
async fn behind_two_layers_a_slow_upload_holds_neither_lock_and_is_in_memory_once() {
    let node = MemoryNode::new();
    let locks = on(&node).body_buffers(100).connect().await.unwrap();
    let inner = counting().route_layer(layer(&locks, LockPolicy::new("stock")));
    let app = locked(inner, &locks, order());
    let (mut client, body) = slow_body(None);
    let request = start(&app, body);
    client.send(vec![b'x'; 60]);
    client.until_polled(2).await;
    assert!(node.is_empty());
    drop(client);
    let answer = request.await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "60"));
    assert!(node.is_empty());
}

/// Each of them announces as much as there is memory for all requests.
#[tokio::test]
async fn clients_that_announce_bodies_and_send_nothing_keep_nobody_out() {
    let locks = on(&MemoryNode::new()).body_buffers(100).connect().await.unwrap();
    let app = locked(counting(), &locks, order());
    let mut silent = Vec::new();
    for _ in 0..5 {
        let (mut client, body) = slow_body(Some(100));
        let request = start(&app, body);
        client.until_polled(1).await;
        silent.push((client, request));
    }
    assert_eq!(answer(&app, upload(Body::from(vec![b'x'; 100]))).await.body, "100");
    assert!(silent.iter().all(|(_, request)| !request.is_finished()));
}

#[tokio::test]
async fn each_end_of_a_request_gives_the_memory_of_its_body_back() {
    let node = MemoryNode::new();
    let locks = on(&node).body_buffers(10).connect().await.unwrap();
    let full = || Body::from("0123456789");
    let counting = locked(counting(), &locks, order());

    let ignoring = locked(on_post(|| async { "not read" }), &locks, order());
    assert_eq!(answer(&ignoring, upload(full())).await.body, "not read");
    assert_eq!(answer(&counting, upload(full())).await.body, "10");

    let panicking = locked(on_post(panicking), &locks, order());
    assert!(start(&panicking, full()).await.unwrap_err().is_panic());
    assert_eq!(answer(&counting, upload(full())).await.body, "10");

    let guard = held_by_another(&node, "order").await;
    assert_eq!(answer(&counting, upload(full())).await.status, 409);
    let waiting = locked(on_post(|| async {}), &locks, order().wait_forever());
    let (mut client, body) = slow_body(None);
    let leaving = start(&waiting, body);
    client.send("0123456789");
    client.until_polled(2).await;
    drop(client);
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    guard.release().await.unwrap();
    assert_eq!(answer(&counting, upload(full())).await.body, "10");
}

/// A client that sends one byte now and then would otherwise fill the queue of an order.
#[tokio::test]
async fn uploads_that_are_not_whole_take_no_place_among_the_waiters() {
    let node = MemoryNode::new();
    let locks = on(&node).max_waiters(1).connect().await.unwrap();
    let app = locked(counting(), &locks, order().wait_forever());
    let guard = held_by_another(&node, "order").await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let (mut client, body) = slow_body(None);
        let request = start(&app, body);
        client.send("x");
        client.until_polled(2).await;
        slow.push((client, request));
    }
    let whole = start(&app, Body::from("whole"));
    guard.release().await.unwrap();
    assert_eq!(whole.await.unwrap().body, "5");
    for (client, request) in slow {
        drop(client);
        assert_eq!(request.await.unwrap().body, "1");
    }
}

/// The handler has returned, the lock is renewed, and the client decides when the response ends.
#[tokio::test]
async fn an_upload_that_is_echoed_under_the_lock_has_one_lease() {
    let test = TestLocks::new(1);
    let policy = order().body(BodyMode::Stream).hold_until(HoldUntil::EndOfBody);
    let echo = on_post(|body: Body| async move { body });
    let app = locked(echo, &test.manager(), policy);
    let other_copy = test.builder().connect().await.unwrap();
    let (client, body) = slow_body(None);
    let start = Instant::now();
    let response = app.oneshot(upload(body)).await.unwrap();
    assert_eq!(response.status(), 200);
    let reading = tokio::spawn(response.into_body().collect());
    client.send("x");

    let next = other_copy.lock("order").wait_time(Duration::from_secs(3600)).acquire();
    next.await.unwrap().release().await.unwrap();
    let lease = Duration::from_secs(30);
    assert!(start.elapsed() < lease + Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(reading.await.unwrap().is_err());
    drop(client);
}

/// The client keeps its connection, and neither a lock nor memory.
#[tokio::test]
async fn the_rest_of_a_refused_upload_is_read_for_a_bounded_time() {
    for (sends, drains, seconds) in [(false, false, 2), (true, false, 30), (true, true, 2)] {
        let locks = TestLocks::new(1).manager();
        let app = locked(counting(), &locks, order());
        let _held = hold(&locks, "order").await;
        if drains {
            drop(locks.drain());
        }
        let (client, body) = slow_body(None);
        let begun = Instant::now();
        let status = answer(&app, upload(body)).await.status;
        assert_eq!(status, 409);
        let sending = async {
            loop {
                sleep(Duration::from_secs(1)).await;
                client.send("x");
            }
        };
        tokio::select! {
            () = client.pieces.closed() => {}
            () = sending, if sends => {}
        }
        let (took, expected) = (begun.elapsed(), Duration::from_secs(seconds));
        assert!(took >= expected && took < expected + Duration::from_secs(1), "{took:?}");
    }
}

/// A client that sends without an end would keep the service busy for as long as it waits.
#[tokio::test]
async fn a_handler_reads_two_mebibytes_of_a_body_that_it_does_not_use() {
    #[redis_lock(key = "order")]
    async fn handler(Extension(stage): Extension<Stage>) {
        stage.enter().await;
    }

    let (locks, _node) = memory().await;
    let stage = Stage::new();
    let router = Router::new().route("/", on_post(handler)).layer(Extension(stage.clone()));
    let (mut client, body) = slow_body(None);
    for _ in 0..3 {
        client.send(vec![b'x'; 1 << 20]);
    }
    let request = start(&app(router, &locks), body);
    client.until_polled(2).await;
    assert_eq!(*client.polls.borrow(), 2);
    stage.leave(1);
    assert_eq!(request.await.unwrap().status, 200);
}
