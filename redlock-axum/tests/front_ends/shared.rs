//! Shared locks and permits.

use std::pin::pin;

use axum::Extension;
use axum::extract::State;
use redlock_axum::{FencedLock, HeldLock, LockError, LockManager, LockRejection, MemoryNode};
use redlock_logs::Logs;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::stage::Stage;
use super::{App, FrontEnd, HOUR, KEY, MINUTE, SHORT};
use crate::support::{held_by_another, hold, until_logged};

on_each_front_end![
    readers_run_at_once_and_exclude_an_exclusive_holder,
    a_reader_is_refused_while_there_is_an_exclusive_holder,
    at_most_n_requests_hold_a_permit,
    permits_and_readers_exclude_each_other,
    a_reader_that_asks_for_the_exclusive_lock_is_refused_at_once,
    a_reader_may_read_again,
    an_exclusive_holder_may_read_its_own_lock_if_it_is_reentrant,
    a_request_takes_one_permit,
    a_reader_with_min_hold_keeps_out_writers_and_no_readers,
    a_shared_lock_has_no_number,
];

/// Sends this number of requests, and waits until all of them run.
async fn send_inside(app: &App, stage: &Stage, requests: usize) -> JoinSet<u16> {
    let mut sent = JoinSet::new();
    for _ in 0..requests {
        let app = app.clone();
        sent.spawn(async move { app.post().await.status.as_u16() });
    }
    stage.until_inside(requests).await;
    sent
}

async fn readers_run_at_once_and_exclude_an_exclusive_holder(front_end: FrontEnd) {
    let stage = Stage::new();
    let app = app!(
        front_end, [shared, expire = 60], [.shared(true).expire(MINUTE)],
        async fn handler(lock: HeldLock, Extension(stage): Extension<Stage>) {
            assert!(lock.is_shared() && lock.is_valid());
            stage.enter().await;
        }
    );
    let app = app.with(stage.clone());
    let readers = send_inside(&app, &stage, 2).await;

    // Another reader in another copy of the service, and a writer, which waits for all three.
    let other = LockManager::builder().memory_node(&app.node).connect().await.unwrap();
    let another = other.lock(KEY).shared(true).try_acquire().await.unwrap();
    for locks in [&app.locks, &other] {
        let refused = locks.lock(KEY).try_acquire().await.unwrap_err();
        assert!(refused.is_contended(), "{refused:?}");
    }
    let mut writer = pin!(other.lock(KEY).wait_time(HOUR).acquire());
    assert!(timeout(SHORT / 5, &mut writer).await.is_err());
    drop(another);
    stage.leave(1);
    stage.until_inside(1).await;
    assert!(timeout(SHORT / 5, &mut writer).await.is_err());
    stage.leave(1);
    writer.await.unwrap().release().await.unwrap();
    assert_eq!(readers.join_all().await, [200, 200]);
    assert!(app.node.is_empty());
}

async fn a_reader_is_refused_while_there_is_an_exclusive_holder(front_end: FrontEnd) {
    let app = app!(
        front_end, [shared], [.shared(true)],
        async fn handler() {}
    );
    for guard in [held_by_another(&app.node, KEY).await, hold(&app.locks, "another key").await] {
        let answer = app.post().await;
        let is_refused = guard.keys()[0].as_str() == KEY;
        assert_eq!(answer.status, if is_refused { 409 } else { 200 });
        let retry_after = answer.headers.get("retry-after").map(|value| value.to_str().unwrap());
        assert_eq!(retry_after, is_refused.then_some("5"));
        guard.release().await.unwrap();
    }
}

async fn at_most_n_requests_hold_a_permit(front_end: FrontEnd) {
    let stage = Stage::new();
    let app = app!(
        front_end, [permits = 3, expire = 60], [.permits(3).expire(MINUTE)],
        async fn handler(lock: HeldLock, Extension(stage): Extension<Stage>) {
            assert!(lock.is_shared());
            stage.enter().await;
        }
    );
    let app = app.with(stage.clone());
    let mut exports = send_inside(&app, &stage, 3).await;
    assert_eq!(app.node.len(), 3);
    let fourth = app.post().await;
    assert_eq!(
        (fourth.status.as_u16(), &fourth.headers["retry-after"]),
        (409, &"5".parse().unwrap())
    );

    stage.leave(1);
    assert_eq!(exports.join_next().await.unwrap().unwrap(), 200);
    exports.spawn(async move { app.post().await.status.as_u16() });
    stage.until_inside(3).await;
    stage.leave(3);
    assert_eq!(exports.join_all().await, [200; 3]);
}

async fn permits_and_readers_exclude_each_other(front_end: FrontEnd) {
    let app = app!(
        front_end, [permits = 3], [.permits(3)],
        async fn handler() {}
    );
    let reader = app.locks.lock(KEY).shared(true).try_acquire().await.unwrap();
    assert_eq!(app.post().await.status, 409);
    reader.release().await.unwrap();
    assert_eq!(app.post().await.status, 200);
}

/// It would wait for itself, and `reentrant` does not change that.
async fn a_reader_that_asks_for_the_exclusive_lock_is_refused_at_once(front_end: FrontEnd) {
    let app = app!(
        front_end, [shared], [.shared(true)],
        async fn handler(State(locks): State<LockManager>) -> Result<(), LockRejection> {
            for reentrant in [false, true] {
                let exclusive = locks.lock(KEY).reentrant(reentrant).wait_time(HOUR).acquire();
                let refused = timeout(MINUTE / 6, exclusive).await.unwrap().unwrap_err();
                assert!(matches!(refused, LockError::AlreadyHeld { .. }), "{refused:?}");
            }
            Err(locks.lock(KEY).try_acquire().await.unwrap_err().into())
        }
    );
    let logs = Logs::collect();
    until_logged(&logs, "ERROR", "both shared or both exclusive", async || {
        assert_eq!(app.post().await.status, 500);
    })
    .await;
    assert!(app.node.is_empty());
}

/// Not even a writer that waits keeps a request from reading again: it would wait for itself.
async fn a_reader_may_read_again(front_end: FrontEnd) {
    let app = app!(
        front_end, [shared], [.shared(true)],
        async fn handler(State(locks): State<LockManager>) {
            let writer = locks.lock(KEY).wait_time(HOUR);
            let writer = tokio::spawn(async move { writer.acquire().await.unwrap().release().await });
            // From then on, readers of other requests are refused.
            let stranger = || tokio::spawn(locks.lock(KEY).shared(true).try_acquire());
            while stranger().await.unwrap().is_ok() {}
            let again = timeout(MINUTE / 6, locks.lock(KEY).shared(true).wait_time(HOUR).acquire());
            again.await.unwrap().unwrap().release().await.unwrap();
            assert!(!writer.is_finished());
        }
    );
    assert_eq!(app.post().await.status, 200);
}

async fn an_exclusive_holder_may_read_its_own_lock_if_it_is_reentrant(front_end: FrontEnd) {
    let app = app!(
        front_end,
        [],
        [],
        async fn handler(lock: HeldLock, State(locks): State<LockManager>) {
            assert!(!lock.is_shared());
            let refused = locks.lock(KEY).shared(true).try_acquire().await.unwrap_err();
            assert!(matches!(refused, LockError::AlreadyHeld { .. }), "{refused:?}");
            let own = locks.lock(KEY).shared(true).reentrant(true).try_acquire().await.unwrap();
            assert!(!own.is_shared(), "it is the exclusive lock");
        }
    );
    assert_eq!(app.post().await.status, 200);
    assert!(app.node.is_empty());
}

async fn a_request_takes_one_permit(front_end: FrontEnd) {
    let app = app!(
        front_end, [permits = 2], [.permits(2)],
        async fn handler(State(locks): State<LockManager>, Extension(node): Extension<MemoryNode>) {
            let permit = |number| locks.lock(KEY).permits(number);
            for second in [permit(2), permit(3).reentrant(true), locks.lock(KEY).shared(true)] {
                let refused = second.wait_time(HOUR).acquire().await.unwrap_err();
                assert!(matches!(refused, LockError::AlreadyHeld { .. }), "{refused:?}");
            }
            let same = permit(2).reentrant(true).try_acquire().await.unwrap();
            assert_eq!(node.len(), 1);
            same.release().await.unwrap();
            assert_eq!(node.len(), 1, "the permit of the handler was released");
        }
    );
    assert_eq!(app.post().await.status, 200);
    assert!(app.node.is_empty());
}

async fn a_reader_with_min_hold_keeps_out_writers_and_no_readers(front_end: FrontEnd) {
    let app = app!(
        front_end, [shared, expire = 60, min_hold = 30], [.shared(true).expire(MINUTE).min_hold(MINUTE / 2)],
        async fn handler() {}
    );
    assert_eq!(app.post().await.status, 200);
    let left = app.time_to_live().unwrap();
    assert!((MINUTE / 3..=MINUTE / 2).contains(&left), "{left:?}");
    assert_eq!(app.post().await.status, 200);
    let other = LockManager::builder().memory_node(&app.node).connect().await.unwrap();
    for locks in [&app.locks, &other] {
        drop(locks.lock(KEY).shared(true).try_acquire().await.unwrap());
        assert!(locks.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    }
}

async fn a_shared_lock_has_no_number(front_end: FrontEnd) {
    let app = app!(
        front_end, [shared], [.shared(true)],
        async fn handler(lock: HeldLock, fenced: Option<FencedLock>) -> String {
            format!("{} {}", lock.is_shared(), fenced.is_some())
        }
    );
    assert_eq!(app.post().await.body, "true false");
}

/// Three callers could each get a majority of the nodes for one of two permits. A layer finds the mistake when it is made.
#[tokio::test]
async fn permits_on_several_nodes_are_refused_and_the_log_says_why() {
    let app = app!(
        FrontEnd::Attribute,
        [permits = 2],
        [],
        async fn handler() {
            unreachable!("the body ran without a permit");
        }
    );
    let mut builder = LockManager::builder();
    for _ in 0..3 {
        builder = builder.memory_node(&MemoryNode::new());
    }
    let app = App { locks: builder.connect().await.unwrap(), ..app };
    let logs = Logs::collect();
    until_logged(&logs, "ERROR", "unset for a manager with 3 nodes", async || {
        assert_eq!(app.post().await.status, 500);
    })
    .await;
}
