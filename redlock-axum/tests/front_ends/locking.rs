//! Which requests get the lock, and how long they wait for it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Extension;
use redlock_axum::{Dialect, HeldLock, LockManager, LockOptions, MemoryNode};
use redlock_logs::Logs;
use tokio::time::timeout;

use super::{FrontEnd, KEY, MINUTE, SHORT, pay};
use crate::support::{answer, held_by_another, hold, until_logged};

on_each_front_end![
    the_lock_is_held_while_the_handler_runs_and_free_when_the_response_leaves,
    the_options_set_the_lease,
    a_handler_can_extract_its_own_lock,
    a_contended_request_is_refused_without_running_its_handler,
    a_request_waits_for_the_lock_until_its_wait_time_is_over,
    a_request_that_waits_forever_gets_the_lock_when_it_is_free,
    the_options_set_the_dialect,
    flags_can_be_set_to_false,
    all_options_can_be_set_at_once,
    a_drain_answers_the_requests_that_wait_and_refuses_new_ones,
    after_the_shutdown_requests_are_refused_as_unavailable,
];

async fn the_lock_is_held_while_the_handler_runs_and_free_when_the_response_leaves(
    front_end: FrontEnd,
) {
    let app = app!(
        front_end,
        [],
        [],
        async fn handler(Extension(node): Extension<MemoryNode>) -> String {
            node.time_to_live(KEY).unwrap().as_millis().to_string()
        }
    );
    let answer = app.post().await;
    assert!(app.node.is_empty());
    assert_eq!(answer.status, 200);
    // The lease of the manager is 30 s.
    let default: u64 = answer.body.parse().unwrap();
    assert!((1000..=30_000).contains(&default), "{default}");
}

async fn the_options_set_the_lease(front_end: FrontEnd) {
    let app = app!(
        front_end, [expire = 90], [.expire(MINUTE * 3 / 2)],
        async fn handler(Extension(node): Extension<MemoryNode>) -> String {
            node.time_to_live(KEY).unwrap().as_millis().to_string()
        }
    );
    let chosen: u64 = app.post().await.body.parse().unwrap();
    assert!((85_000..=90_000).contains(&chosen), "{chosen}");
}

async fn a_handler_can_extract_its_own_lock(front_end: FrontEnd) {
    let app = app!(
        front_end, [expire = 5], [.expire(MINUTE / 12)],
        async fn handler(lock: HeldLock, Extension(node): Extension<MemoryNode>) -> String {
            assert!(lock.is_valid());
            lock.extend(MINUTE).await.unwrap();
            assert!(lock.remaining() > MINUTE * 5 / 6);
            assert!(node.time_to_live(KEY).unwrap() > MINUTE * 5 / 6);
            lock.keys()[0].to_string()
        }
    );
    assert_eq!(app.post().await.body, KEY);
}

/// No work without the lock. klock runs the body without the lock when the wait is over.
async fn a_contended_request_is_refused_without_running_its_handler(front_end: FrontEnd) {
    let calls = Arc::new(AtomicUsize::new(0));
    let app = app!(
        front_end,
        [],
        [],
        async fn handler(Extension(calls): Extension<Arc<AtomicUsize>>) {
            calls.fetch_add(1, Ordering::Relaxed);
        }
    );
    let app = app.with(Arc::clone(&calls));
    let guard = held_by_another(&app.node, KEY).await;
    let answer = app.post().await;
    assert_eq!(answer.status, 409);
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    assert!(!answer.body.contains("4711"), "{}", answer.body);
    assert_eq!(calls.load(Ordering::Relaxed), 0);

    guard.release().await.unwrap();
    assert_eq!(app.post().await.status, 200);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

async fn a_request_waits_for_the_lock_until_its_wait_time_is_over(front_end: FrontEnd) {
    let patient = app!(
        front_end, [wait_time = 30], [.wait_time(MINUTE / 2)],
        async fn handler() {}
    );
    let guard = held_by_another(&patient.node, KEY).await;
    let mut waiting = pin!(patient.post());
    assert!(timeout(SHORT / 5, &mut waiting).await.is_err());
    guard.release().await.unwrap();
    assert_eq!(waiting.await.status, 200);

    let hasty = app!(
        front_end, [wait_time = 50, time_unit = "milliseconds"], [.wait_time(SHORT / 2)],
        async fn handler() {}
    );
    let _guard = hold(&hasty.locks, KEY).await;
    let start = Instant::now();
    assert_eq!(hasty.post().await.status, 409);
    assert!(start.elapsed() >= Duration::from_millis(50));
}

async fn a_request_that_waits_forever_gets_the_lock_when_it_is_free(front_end: FrontEnd) {
    let app = app!(
        front_end, [wait_time = "forever"], [.wait_forever()],
        async fn handler() -> &'static str {
            "at last"
        }
    );
    let other_process = LockManager::builder().memory_node(&app.node).connect().await.unwrap();
    for locks in [&app.locks, &other_process] {
        let guard = hold(locks, KEY).await;
        let mut waiting = pin!(app.post());
        assert!(timeout(SHORT / 2, &mut waiting).await.is_err());
        guard.release().await.unwrap();
        assert_eq!(waiting.await.body, "at last");
    }
}

async fn a_drain_answers_the_requests_that_wait_and_refuses_new_ones(front_end: FrontEnd) {
    let app = app!(front_end, [wait_time = "forever"], [.wait_forever()], async fn handler() {});
    let _guard = held_by_another(&app.node, KEY).await;
    let logs = Logs::collect();
    let mut waiting = pin!(app.post());
    assert!(timeout(SHORT / 5, &mut waiting).await.is_err());
    drop(app.locks.drain());
    for answer in [waiting.await, app.post().await] {
        assert_eq!(answer.status, 503);
        assert_eq!(answer.headers["retry-after"], "1");
    }
    // A drain is no fault, so its refusals are no warnings.
    assert_eq!(logs.count("WARN", "draining"), 0, "{:?}", logs.lines());
}

async fn after_the_shutdown_requests_are_refused_as_unavailable(front_end: FrontEnd) {
    let app = app!(front_end, [], [], async fn handler() {});
    app.locks.shutdown().await;
    let answer = app.post().await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "1");
}

/// A layer has its manager, and so has a handler with a state that contains it.
#[tokio::test]
async fn without_a_manager_requests_are_refused_and_the_log_names_the_line_to_add() {
    let app = app!(FrontEnd::Attribute, [installed], [], async fn handler() {});
    let router = (app.build)(&app.locks).with_state(app.locks.clone());
    let logs = Logs::collect();
    until_logged(&logs, "ERROR", ".layer(ScopeLayer::new(&locks))", async || {
        let answer = answer(&router, pay()).await;
        assert_eq!(answer.status, 500);
        assert!(!answer.body.contains("ScopeLayer"), "{}", answer.body);
    })
    .await;
}

/// To a caller of the other dialect, the lock is a foreign key, which is an error.
async fn the_options_set_the_dialect(front_end: FrontEnd) {
    let app = app!(
        front_end, [dialect = redisson], [.dialect(Dialect::Redisson)],
        async fn handler() {}
    );
    for (dialect, expected) in [(Dialect::Redisson, 409), (Dialect::Plain, 500)] {
        let holder = LockManager::builder().memory_node(&app.node).connect().await.unwrap();
        let guard = holder.lock(KEY).dialect(dialect).try_acquire().await.unwrap();
        assert_eq!(app.post().await.status, expected, "{dialect:?}");
        guard.release().await.unwrap();
        assert_eq!(app.post().await.status, 200, "{dialect:?}");
    }
}

/// `false` is a valid value, so that a configuration can set each flag.
async fn flags_can_be_set_to_false(front_end: FrontEnd) {
    let app = app!(
        front_end,
        [
            renew = false, keep = false, reentrant = false, fair = false, shared = false, fenced = false
        ],
        [.renew(true).keep(true).reentrant(true).fenced(true)
            .renew(false).keep(false).reentrant(false).fenced(false)],
        async fn handler(
            lock: HeldLock,
            Extension(node): Extension<MemoryNode>,
            fenced: Option<redlock_axum::FencedLock>,
        ) -> String {
            assert!(fenced.is_none() && !lock.is_shared());
            node.time_to_live(KEY).unwrap().as_millis().to_string()
        }
    );
    assert_eq!(app.post().await.status, 200);
    assert!(app.node.is_empty(), "the lock was kept");
}

/// `options` replaces all options that were set before. The attribute has no such form: its
/// arguments form one list.
async fn all_options_can_be_set_at_once(front_end: FrontEnd) {
    const OPTIONS: LockOptions = LockOptions::new().expire(MINUTE);
    let app = app!(
        front_end, [expire = 60], [.keep(true).options(OPTIONS)],
        async fn handler(Extension(node): Extension<MemoryNode>) -> String {
            node.time_to_live(KEY).unwrap().as_secs().to_string()
        }
    );
    let left: u64 = app.post().await.body.parse().unwrap();
    assert!((55..=60).contains(&left), "{left}");
    assert!(app.node.is_empty(), "the lock was kept");
}
