//! A handler whose lock is lost while it runs.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Extension;
use redlock_axum::test_util::{TestLocks, TestNode};
use redlock_axum::{HeldLock, MemoryNode, OnLost};
use redlock_logs::Logs;

use super::{App, FrontEnd, KEY, LEASE};
use crate::support::eventually;

on_each_front_end![
    a_lock_that_is_gone_at_its_release_is_a_lost_lock,
    abort_drops_the_handler_with_its_lock_and_answers_503,
    a_handler_that_is_ready_when_its_lock_is_lost_is_not_resumed,
    a_handler_that_keeps_going_after_a_loss_sends_its_own_response,
    a_detached_handler_does_not_begin_without_its_lock,
    on_lost_abort_does_not_affect_a_handler_that_keeps_its_lock,
];

/// Records that its handler was dropped.
#[derive(Clone, Default)]
struct DropFlag(Arc<AtomicBool>);

struct SetOnDrop(DropFlag);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

async fn abort_drops_the_handler_with_its_lock_and_answers_503(front_end: FrontEnd) {
    let dropped = DropFlag::default();
    let app = app!(
        front_end, [expire = "400ms", on_lost = abort], [.expire(LEASE).on_lost(OnLost::Abort)],
        async fn handler(Extension(dropped): Extension<DropFlag>) {
            let _set_on_drop = SetOnDrop(dropped);
            pending::<()>().await;
        }
    );
    let app = app.with(dropped.clone());
    let logs = Logs::collect();
    let answer = app.post().await;
    assert!(dropped.0.load(Ordering::Relaxed));
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert!(answer.body.contains("the request was stopped"), "{}", answer.body);
    assert!(!answer.body.contains("4711"), "{}", answer.body);
    assert_eq!(logs.count("WARN", "a lock was lost"), 1);
    let stopped = "a request was stopped: the lock was lost: its lease ended; lock";
    let stopped = format!("{stopped} {KEY}");
    assert_eq!(logs.count("WARN", &stopped), 1);
    eventually("the lease runs out", || app.node.is_empty()).await;
}

/// The process is frozen past the lease of its handler. When the process continues, the handler is
/// not polled again.
async fn a_handler_that_is_ready_when_its_lock_is_lost_is_not_resumed(front_end: FrontEnd) {
    let app = app!(
        front_end, [expire = "400ms", on_lost = abort], [.expire(LEASE).on_lost(OnLost::Abort)],
        async fn handler() {
            // Blocks the whole runtime, and its timers, past the lease.
            std::thread::sleep(LEASE * 2);
            tokio::task::yield_now().await;
            unreachable!("the handler continued without its lock");
        }
    );
    assert_eq!(app.post().await.status, 503);
}

/// The task of a detached handler begins after another task has blocked the runtime past the lease.
async fn a_detached_handler_does_not_begin_without_its_lock(front_end: FrontEnd) {
    let keeps_going = app!(
        front_end, [expire = "400ms", detached], [.expire(LEASE).detached(true)],
        async fn handler() {
            unreachable!("the handler has begun without its lock");
        }
    );
    let aborts = app!(
        front_end, [expire = "400ms", detached, on_lost = abort],
        [.expire(LEASE).detached(true).on_lost(OnLost::Abort)],
        async fn handler() {
            unreachable!("the handler has begun without its lock");
        }
    );
    for app in [keeps_going, aborts] {
        let node = app.node.clone();
        tokio::spawn(async move {
            while node.is_empty() {
                tokio::task::yield_now().await;
            }
            std::thread::sleep(LEASE * 2);
        });
        let answer = app.post().await;
        assert_eq!(answer.status, 503);
        assert!(!answer.body.contains("a part of it may be done"), "{}", answer.body);
    }
}

/// The default, and the same behaviour as an explicit option.
async fn a_handler_that_keeps_going_after_a_loss_sends_its_own_response(front_end: FrontEnd) {
    let default = app!(
        front_end, [expire = "400ms"], [.expire(LEASE)],
        async fn handler(lock: HeldLock) -> &'static str {
            lock.lost().await;
            tokio::task::yield_now().await;
            "done"
        }
    );
    let explicit = app!(
        front_end,
        [expire = "400ms", on_lost = keep_going],
        [.expire(LEASE).on_lost(OnLost::KeepGoing)],
        async fn handler(lock: HeldLock) -> &'static str {
            lock.lost().await;
            tokio::task::yield_now().await;
            "done"
        }
    );
    for app in [default, explicit] {
        let answer = app.post().await;
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, "done"));
    }
}

async fn on_lost_abort_does_not_affect_a_handler_that_keeps_its_lock(front_end: FrontEnd) {
    let app = app!(
        front_end, [on_lost = abort], [.on_lost(OnLost::Abort)],
        async fn handler(Extension(node): Extension<MemoryNode>) -> String {
            tokio::task::yield_now().await;
            node.len().to_string()
        }
    );
    assert_eq!(app.post().await.body, "1");
    assert!(app.node.is_empty());
}

/// A server may forget a lock while its handler works. Without a renewal in between, only the release can find that.
async fn a_lock_that_is_gone_at_its_release_is_a_lost_lock(front_end: FrontEnd) {
    let app = app!(
        front_end,
        [],
        [],
        async fn handler(Extension(node): Extension<TestNode>) -> &'static str {
            node.forget();
            "done"
        }
    );
    let test = TestLocks::new(1);
    let app = App { locks: test.manager(), ..app.with(test.nodes()[0].clone()) };
    let logs = Logs::collect();
    assert_eq!(app.post().await.body, "done");
    assert_eq!(logs.count("WARN", "found=\"release\""), 1, "{:?}", logs.lines());
    assert_eq!(logs.count("WARN", "a lock was lost"), 1);
}
