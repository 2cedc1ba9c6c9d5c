//! `BodyMode::Stream`: bodies that arrive while the lock is held.

use std::time::Duration;

use axum::body::Body;
use axum::routing::post as on_post;
use axum::{Extension, Router};
use http_body_util::BodyExt;
use redlock_axum::test_util::TestLocks;
use redlock_axum::{BodyMode, HeldLock, HoldUntil, LockPolicy, OnLost};
use tokio::time::timeout;
use tower::ServiceExt;

use super::{counting, order, slow_body, start, upload};
use crate::front_ends::stage::Stage;
use crate::support::{answer, eventually, layer, memory, text};

fn streamed() -> LockPolicy {
    order().body(BodyMode::Stream)
}

/// In the time of [`TestLocks`], which stands still while something can run.
const LEASE: Duration = Duration::from_secs(3);

fn renewed() -> LockPolicy {
    streamed().expire(LEASE).renew(true)
}

#[tokio::test]
async fn a_streamed_body_arrives_under_the_lock() {
    let (locks, node) = memory().await;
    let stage = Stage::new();
    stage.leave(1);
    let app = counting(&locks, &stage, streamed());
    let (mut client, body) = slow_body(None);
    let request = start(&app, body);
    client.send("one");
    client.until_polled(2).await;
    assert!(!node.is_empty());
    client.send("two");
    drop(client);
    assert_eq!(request.await.unwrap().body, "6");
    assert!(node.is_empty());
}

/// The client that sends a byte now and then.
#[tokio::test]
async fn a_handler_does_not_begin_if_its_lock_is_lost_during_its_upload() {
    let test = TestLocks::new(1);
    let (locks, node) = (test.manager(), &test.nodes()[0]);
    for policy in [streamed(), streamed().on_lost(OnLost::Abort), streamed().detached(true)] {
        let stage = Stage::new();
        let app = counting(&locks, &stage, policy.expire(LEASE));
        let (mut client, body) = slow_body(None);
        let request = start(&app, body);
        client.send("half");
        client.until_polled(2).await;
        eventually("the lease ends", || node.is_empty()).await;
        client.send("whole");
        drop(client);
        let answer = request.await.unwrap();
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["retry-after"]),
            (503, &"1".parse().unwrap())
        );
        assert_eq!(stage.inside(), 0, "the handler has begun");
    }
}

/// The last piece arrives after the loss, and before anything else has noticed it.
#[tokio::test]
async fn a_body_that_is_whole_after_the_loss_is_cut() {
    let (locks, _node) = memory().await;
    let stage = Stage::new();
    let app = counting(&locks, &stage, streamed().expire(super::LEASE));
    let (client, body) = slow_body(None);
    let late = async {
        tokio::task::yield_now().await;
        // Blocks the whole runtime, and its timers, past the lease.
        std::thread::sleep(super::LEASE * 2);
        client.send("whole");
        drop(client);
    };
    let (answer, ()) = tokio::join!(answer(&app, upload(body)), late);
    assert_eq!(answer.status, 503);
    assert_eq!(stage.inside(), 0);
}

#[tokio::test]
async fn an_upload_has_one_lease_although_its_lock_is_renewed() {
    let test = TestLocks::new(1);
    let (locks, node) = (test.manager(), &test.nodes()[0]);
    let stage = Stage::new();
    let app = counting(&locks, &stage, renewed());
    let (mut client, body) = slow_body(None);
    let request = start(&app, body);
    client.send("half");
    client.until_polled(2).await;
    let answer = request.await.unwrap();
    assert_eq!(answer.status, 408);
    assert!(answer.body.contains(r#""code":"body_too_slow""#), "{}", answer.body);
    assert!(answer.body.contains("did not arrive in time"), "{}", answer.body);
    assert!(node.is_empty(), "the lock is held after the response");
    assert_eq!(stage.inside(), 0);
}

#[tokio::test]
async fn a_body_that_arrives_in_time_leaves_the_handler_its_time() {
    async fn work(lock: HeldLock, body: String) -> String {
        tokio::time::sleep(LEASE * 2).await;
        format!("{body} {}", lock.is_valid())
    }

    let locks = TestLocks::new(1).manager();
    let app = Router::new().route("/", on_post(work)).route_layer(layer(&locks, renewed()));
    let (client, body) = slow_body(None);
    client.send("in time");
    drop(client);
    assert_eq!(answer(&app, upload(body)).await.body, "in time true");
}

/// It meets the error of a client that disconnects, and its answer is replaced.
#[tokio::test]
async fn a_handler_that_reads_by_itself_meets_an_error() {
    async fn read(Extension(stage): Extension<Stage>, mut body: Body) -> &'static str {
        let mut error = String::new();
        while let Some(piece) = body.frame().await {
            error = piece.map_or_else(|error| error.to_string(), |_| String::new());
        }
        assert_eq!(error, "the lock of the request ended before its body had arrived");
        stage.enter().await;
        "stored"
    }

    let stage = Stage::new();
    let locks = TestLocks::new(1).manager();
    let app = |policy| {
        let handler = on_post(read).route_layer(layer(&locks, policy));
        Router::new().route("/", handler).layer(Extension(stage.clone()))
    };
    for (policy, status) in [(streamed().expire(LEASE), 503), (renewed(), 408)] {
        let (client, body) = slow_body(None);
        client.send("half");
        let request = start(&app(policy), body);
        stage.until_inside(1).await;
        stage.leave(1);
        assert_eq!(request.await.unwrap().status, status);
        drop(client);
    }
}

/// The nodes forget the lock; the renewal finds it.
#[tokio::test]
async fn a_lock_that_the_nodes_forget_during_an_upload_cuts_it() {
    async fn never(_: String) {
        unreachable!("the handler has begun without its lock");
    }

    let test = TestLocks::new(1);
    let locks = test.manager();
    let handler = on_post(never).route_layer(layer(&locks, renewed()));
    let app = Router::new().route("/", handler);
    let (mut client, body) = slow_body(None);
    let request = start(&app, body);
    client.until_polled(1).await;
    test.nodes()[0].forget();
    assert_eq!(request.await.unwrap().status, 503);
}

/// A proxy streams the request's body into its response. After the release no limit remains.
#[tokio::test]
async fn a_body_that_outlives_its_lock_is_not_limited() {
    let test = TestLocks::new(1);
    let (locks, node) = (test.manager(), &test.nodes()[0]);
    let app = |hold_until| {
        let layer = layer(&locks, renewed().hold_until(hold_until));
        Router::new().route("/", on_post(|body: Body| async { body })).route_layer(layer)
    };
    let (client, body) = slow_body(None);
    let response = app(HoldUntil::Response).oneshot(upload(body)).await.unwrap();
    assert!(node.is_empty());
    client.send("one ");
    let sent = tokio::spawn(text(response));
    tokio::time::sleep(LEASE * 2).await;
    client.send("two");
    drop(client);
    assert_eq!(sent.await.unwrap(), "one two");

    // Under the lock it is limited, and the response breaks off.
    let (_client, body) = slow_body(None);
    let response = app(HoldUntil::EndOfBody).oneshot(upload(body)).await.unwrap();
    assert!(!node.is_empty());
    let end = timeout(Duration::from_secs(10), response.into_body().collect()).await;
    assert!(end.unwrap().is_err());
    eventually("the lock is released", || node.is_empty()).await;
}
