//! A drain while requests upload, work, stream or lead.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use redlock_axum::test_util::TestLocks;
use redlock_axum::{HoldUntil, LockError, LockManager};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::Instant;
use tower::ServiceExt;

use super::stage::Stage;
use super::{FrontEnd, KEY, pay};
use crate::bodies::slow_body;
use crate::support::{answer, held_by_another, text};

on_each_front_end![
    a_request_whose_body_arrives_during_a_drain_is_refused,
    a_handler_waits_for_its_second_lock_during_a_drain,
    a_body_that_holds_the_lock_is_sent_to_its_end_during_a_drain,
    a_handler_whose_client_has_left_gets_its_second_lock_during_a_drain,
];

async fn a_request_whose_body_arrives_during_a_drain_is_refused(front_end: FrontEnd) {
    let stage = Stage::new();
    let app = app!(
        front_end, [wait_time = "forever"], [.wait_forever()],
        async fn handler(Extension(stage): Extension<Stage>, _body: Bytes) {
            stage.enter().await;
        }
    );
    let app = app.with(stage.clone());
    let (mut client, body) = slow_body(None);
    let request = pay().map(|_| body);
    let router = app.router();
    let request = tokio::spawn(async move { answer(&router, request).await });
    client.send("half of it, ");
    client.until_polled(2).await;
    // The client does not hold the drain up.
    app.locks.drain().await;
    client.send("and the rest");
    drop(client);
    let answer = request.await.unwrap();
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(stage.inside(), 0);
    assert!(app.node.is_empty());
}

/// The task that the handler spawns holds no lock, and is not in its scope.
async fn a_handler_waits_for_its_second_lock_during_a_drain(front_end: FrontEnd) {
    let stage = Stage::new();
    let app = app!(
        front_end,
        [],
        [],
        async fn handler(
            State(locks): State<LockManager>,
            Extension(stage): Extension<Stage>,
        ) -> String {
            stage.enter().await;
            let child = tokio::spawn(locks.lock("child").try_acquire()).await.unwrap();
            let second = locks.lock("second").wait_forever().acquire().await;
            format!("{} {}", matches!(child, Err(LockError::Draining)), second.is_ok())
        }
    );
    let app = app.with(stage.clone());
    let second = held_by_another(&app.node, "second").await;
    let request = tokio::spawn({
        let app = app.clone();
        async move { app.post().await }
    });
    stage.until_inside(1).await;
    let drained = tokio::spawn(app.locks.drain());
    stage.leave(1);
    stage.until_inside(0).await;
    assert_eq!(app.post().await.status, 503);
    assert!(!drained.is_finished());
    second.release().await.unwrap();
    assert_eq!(request.await.unwrap().body, "true true");
    drained.await.unwrap();
    app.locks.shutdown().await;
    assert!(app.node.is_empty());
}

async fn a_body_that_holds_the_lock_is_sent_to_its_end_during_a_drain(front_end: FrontEnd) {
    let app = app!(
        front_end, [hold_until = end_of_body], [.hold_until(HoldUntil::EndOfBody)],
        async fn handler() -> &'static str {
            "a report"
        }
    );
    let other_copy = LockManager::builder().memory_node(&app.node).connect().await.unwrap();
    let response = app.router().oneshot(pay()).await.unwrap();
    let mut drained = pin!(app.locks.drain());
    tokio::select! {
        biased;
        () = &mut drained => panic!("the drain did not wait for the body"),
        () = yield_now() => {}
    }
    // The next holder is in another process.
    let next = tokio::spawn(other_copy.lock(KEY).wait_forever().acquire());
    assert_eq!(app.post().await.status, 503);
    assert_eq!(text(response).await, "a report");
    drained.await;
    next.await.unwrap().unwrap().release().await.unwrap();
}

async fn a_handler_whose_client_has_left_gets_its_second_lock_during_a_drain(front_end: FrontEnd) {
    let (stage, seconds) = (Stage::new(), watch::Sender::new(0_usize));
    let app = app!(
        front_end, [detached], [.detached(true)],
        async fn handler(
            State(locks): State<LockManager>,
            Extension(stage): Extension<Stage>,
            Extension(seconds): Extension<watch::Sender<usize>>,
        ) {
            stage.enter().await;
            let _second = locks.lock("second").try_acquire().await.unwrap();
            seconds.send_modify(|seconds| *seconds += 1);
        }
    );
    let app = app.with(stage.clone()).with(seconds.clone());
    let request = tokio::spawn({
        let app = app.clone();
        async move { app.post().await }
    });
    stage.until_inside(1).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    let drained = app.locks.drain();
    stage.leave(1);
    drained.await;
    app.locks.shutdown().await;
    assert_eq!(*seconds.borrow(), 1);
    assert!(app.node.is_empty());
}

const LEASE: Duration = Duration::from_secs(30);

/// Each node fails at once, or is silent.
#[tokio::test]
async fn a_process_that_waits_to_lead_during_an_outage_ends_at_the_drain() {
    for silent in [false, true] {
        let test = TestLocks::new(3);
        for node in test.nodes() {
            if silent { node.freeze() } else { node.fail() }
        }
        let lead = test.manager().lead("reminders");
        let waiting = tokio::spawn(lead.run(async |_| panic!("it leads without a quorum")));
        test.clock().advance(10 * LEASE).await;
        assert!(!waiting.is_finished());
        let start = Instant::now();
        test.manager().drain().await;
        let ended: Result<(), LockError> = waiting.await.unwrap();
        assert!(matches!(ended, Err(LockError::Draining)), "{ended:?}");
        assert!(start.elapsed() < LEASE, "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_leader_resigns_at_a_drain_during_an_outage_and_the_next_one_leads_within_the_lease() {
    for silent in [false, true] {
        let test = TestLocks::new(3);
        let other_copy = test.builder().connect().await.unwrap();
        let (leads, mut leading) = watch::channel(false);
        let lead = test.manager().lead("reminders").expire(LEASE);
        let leader = tokio::spawn(lead.run(async move |_| {
            leads.send_replace(true);
            pending::<()>().await;
        }));
        leading.wait_for(|leads| *leads).await.unwrap();
        for node in test.nodes() {
            if silent { node.freeze() } else { node.fail() }
        }
        let start = Instant::now();
        drop(test.manager().drain());
        let ended = leader.await.unwrap();
        assert!(matches!(ended, Err(LockError::Draining)), "{ended:?}");
        // Its work is dropped, long before the loss of the lock would end it.
        assert!(leading.changed().await.is_err());
        assert!(start.elapsed() < LEASE / 10, "{:?}", start.elapsed());

        for node in test.nodes() {
            node.recover();
        }
        assert_eq!(other_copy.lead("reminders").run(async |_| 7).await.unwrap(), 7);
        assert!(start.elapsed() < LEASE + Duration::from_secs(1), "{:?}", start.elapsed());
    }
}
