//! Detached work under a lock, with nodes in memory and in paused time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use redlock_logs::Logs;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{Instrument, Span};

use super::detached::detach;
use super::run_tests::{DELAY, LEASE, PATIENCE, is_held, over, request, until_free};
use crate::clock::fake::FakeClock;
use crate::node::fake::FakeNode;
use crate::{
    LockError, LockHandle, LockManager, LockManagerBuilder, LockState, MemoryNode, OnLost,
    RunError, scope,
};

/// Work that has begun, and whose caller has left.
struct Abandoned {
    locks: LockManager,
    nodes: Vec<Arc<FakeNode>>,
}

/// Runs detached work, and lets its caller leave when the work has begun.
async fn abandon<F, Fut>(on_lost: OnLost, work: F) -> Abandoned
where
    F: FnOnce(LockHandle) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let (locks, nodes) = over(3);
    let (begun, begins) = oneshot::channel();
    let request = request(&locks).renew(true).on_lost(on_lost);
    let run = request.run_detached(async move |lock| {
        begun.send(()).unwrap();
        work(lock).await;
    });
    tokio::select! {
        ended = run => panic!("{ended:?}"),
        begun = begins => begun.unwrap(),
    }
    Abandoned { locks, nodes }
}

#[tokio::test(start_paused = true)]
async fn the_result_is_returned_after_the_release() {
    let (locks, nodes) = over(3);
    let text = String::from("text");
    let output = request(&locks).run_detached(async move |lock| {
        sleep(DELAY).await;
        (text.len(), lock)
    });
    let (length, lock) = output.await.unwrap();
    assert_eq!((length, lock.state()), (4, LockState::Released));
    assert!(!is_held(&nodes));
}

/// Another task takes so long that the lease is over before the task of the work begins.
#[tokio::test(start_paused = true)]
async fn work_whose_lock_is_lost_before_its_task_begins_does_not_begin() {
    let (clock, node) = (FakeClock::default(), MemoryNode::new());
    let nodes = vec![Arc::new(node.clone()) as _];
    let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(clock.clone()));
    for on_lost in [OnLost::KeepGoing, OnLost::Abort] {
        let (clock, held) = (clock.clone(), node.clone());
        tokio::spawn(async move {
            while held.is_empty() {
                tokio::task::yield_now().await;
            }
            clock.advance(LEASE);
        });
        let request = locks.lock("a").expire(LEASE).on_lost(on_lost);
        let run = request.run_detached(async |_| unreachable!("the work has begun"));
        let ended = run.await;
        assert!(matches!(ended, Err(RunError::Acquire(LockError::Lost(_)))), "{ended:?}");
        until_free_on(&node).await;
    }
}

/// Waits until the clean-up of a lost lock has removed its key.
async fn until_free_on(node: &MemoryNode) {
    while !node.is_empty() {
        sleep(DELAY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_when_its_caller_leaves_and_its_lock_is_released_at_its_end() {
    let (end, ended) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (may_end, has_ended) = (Arc::clone(&end), Arc::clone(&ended));
    let abandoned = abandon(OnLost::KeepGoing, async move |lock: LockHandle| {
        may_end.notified().await;
        has_ended.store(lock.is_valid(), Ordering::Relaxed);
    });
    let Abandoned { locks, nodes } = abandoned.await;
    // Longer than the lease, which is renewed.
    sleep(2 * LEASE).await;
    let error = request(&locks).try_acquire().await.unwrap_err();
    assert!(error.is_contended(), "{error:?}");
    end.notify_one();
    until_free(&nodes).await;
    assert!(ended.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn work_does_not_run_if_its_caller_leaves_before_the_lock_is_acquired() {
    let (locks, nodes) = over(3);
    let holder = request(&locks).try_acquire().await.unwrap();
    let work = async |_| unreachable!("the work ran without its caller");
    let waiting = request(&locks).wait_forever().run_detached(work);
    timeout(DELAY, waiting).await.unwrap_err();
    let refused = request(&locks).run_detached(work).await;
    assert!(matches!(refused, Err(RunError::Acquire(LockError::Contended { .. }))), "{refused:?}");
    holder.release().await.unwrap();
    until_free(&nodes).await;
    assert!(locks.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panic_resumes_in_the_caller() {
    let logs = Logs::collect();
    let (locks, nodes) = over(3);
    let run = request(&locks).run_detached(async |_| -> u32 { panic!("of the work") });
    let error = tokio::spawn(run).await.unwrap_err();
    assert_eq!(error.into_panic().downcast_ref(), Some(&"of the work"));
    until_free(&nodes).await;
    assert_eq!(logs.count("ERROR", ""), 0, "{:?}", logs.lines());
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_logged_if_the_caller_has_left() {
    for number in [None, Some(7)] {
        let logs = Logs::collect();
        let Abandoned { nodes, .. } = abandon(OnLost::KeepGoing, async move |_| {
            sleep(DELAY).await;
            match number {
                None => panic!("of the work"),
                Some(number) => panic!("of the work number {number}"),
            }
        })
        .await;
        until_free(&nodes).await;
        let number = number.map_or(String::new(), |number| format!(" number {number}"));
        let text = format!("after its caller had left: of the work{number} lock=a");
        assert_eq!(logs.count("ERROR", &text), 1, "{:?}", logs.lines());
    }
}

/// The nodes forget the lock, and the next renewal reports that.
#[tokio::test(start_paused = true)]
async fn work_whose_lock_is_lost_is_dropped_on_request() {
    let forget = |nodes: &[Arc<FakeNode>]| nodes.iter().for_each(|node| node.forget());

    let (locks, nodes) = over(3);
    let request = request(&locks).renew(true).on_lost(OnLost::Abort);
    let forgotten = nodes.clone();
    let lost = request.run_detached(async move |_| {
        forget(&forgotten);
        pending::<()>().await;
    });
    let lost = timeout(PATIENCE, lost).await.unwrap();
    assert!(matches!(lost, Err(RunError::Lost(_))), "{lost:?}");

    let (owned, mut dropped) = oneshot::channel::<()>();
    let Abandoned { nodes, .. } = abandon(OnLost::Abort, async move |_| {
        let _owned = owned;
        pending::<()>().await;
    })
    .await;
    assert!(dropped.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
    forget(&nodes);
    timeout(PATIENCE, dropped).await.unwrap().unwrap_err();
}

/// Otherwise the inner request would wait for itself for ever.
#[tokio::test(start_paused = true)]
async fn a_second_lock_of_the_same_key_is_refused_inside_of_the_work() {
    let again = async |locks: &LockManager| {
        let again = request(locks).wait_forever().acquire().now_or_never().expect("at once");
        assert!(matches!(again, Err(LockError::AlreadyHeld { .. })), "{again:?}");
        request(locks).reentrant(true).try_acquire().await.unwrap().release().await.unwrap();
    };
    let (locks, nodes) = over(1);
    let own = locks.clone();
    request(&locks).run_detached(async move |_| again(&own).await).await.unwrap();
    assert!(!is_held(&nodes));
    // In a scope around it, the lock of that scope is met too.
    let locks = LockManager::in_memory();
    let own = locks.clone();
    scope(async {
        let guard = request(&locks).try_acquire().await.unwrap();
        locks.lock("b").run_detached(async move |_| again(&own).await).await.unwrap();
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_work_is_in_the_span_of_its_caller() {
    redlock_logs::watch();
    let (locks, _nodes) = over(1);
    let name = |_| async { Span::current().metadata().map(tracing::Metadata::name) };
    let run = request(&locks).run_detached(name);
    let name = run.instrument(tracing::info_span!("payment")).await.unwrap();
    assert_eq!(name, Some("payment"));
}

/// The work takes longer than a shutdown waits for nodes, and than the lease.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_detached_work() {
    let state = Arc::new(parking_lot::Mutex::new(None));
    let last_state = Arc::clone(&state);
    let abandoned = abandon(OnLost::KeepGoing, async move |lock: LockHandle| {
        sleep(8 * LEASE).await;
        *last_state.lock() = Some(lock.state());
    });
    let Abandoned { locks, nodes } = abandoned.await;
    let waiting = request(&locks).wait_forever().acquire();
    let shutdown = spawn_shutdown(&locks);
    let refused = timeout(DELAY, waiting).await.expect("at once");
    assert!(matches!(refused, Err(LockError::ShutDown)), "{refused:?}");
    // A shutdown that is dropped leaves the work alone.
    assert!(timeout(LEASE, locks.shutdown()).await.is_err());
    assert!(!shutdown.is_finished() && is_held(&nodes));
    shutdown.await.unwrap();
    assert_eq!(*state.lock(), Some(LockState::Held));
    assert!(!is_held(&nodes));
}

/// The caller leaves, and the result owns a lock, as the body of a response may.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_until_the_result_is_dropped_and_then_ends_the_other_locks() {
    let logs = Logs::collect();
    let locks = LockManager::in_memory();
    let (begun, begins) = oneshot::channel();
    let inner = locks.clone();
    let run = locks.lock("a").run_detached(async move |_| {
        let guard = inner.lock("b").try_acquire().await.unwrap();
        begun.send(guard.handle()).unwrap();
        sleep(DELAY).await;
        guard
    });
    let of_result = tokio::select! {
        ended = run => panic!("{ended:?}"),
        begun = begins => begun.unwrap(),
    };
    let other = locks.lock("c").try_acquire().await.unwrap();
    spawn_shutdown(&locks).await.unwrap();
    assert_eq!((of_result.state(), other.state()), (LockState::Released, LockState::Lost));
    assert_eq!(logs.count("WARN", "a lock was lost"), 1, "{:?}", logs.lines());
}

/// Otherwise a lock that the result owns could be lost before the result is dropped.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_while_the_result_is_dropped() {
    struct Shutdown(LockManager, Option<oneshot::Sender<bool>>);

    impl Drop for Shutdown {
        fn drop(&mut self) {
            let waits = self.0.shutdown().now_or_never().is_none();
            self.1.take().unwrap().send(waits).unwrap();
        }
    }

    let locks = LockManager::in_memory();
    let (dropped, waits) = oneshot::channel();
    let result = Shutdown(locks.clone(), Some(dropped));
    let run = locks.lock("a").run_detached(async move |_| {
        sleep(DELAY).await;
        result
    });
    timeout(DELAY / 2, run).await.map(drop).unwrap_err();
    assert!(waits.await.unwrap());
}

/// The shutdown begins when the lock has been acquired, but the work has not begun. It does not wait for the work.
#[tokio::test(start_paused = true)]
async fn work_does_not_begin_after_a_shutdown() {
    let (locks, nodes) = over(3);
    let guard = request(&locks).try_acquire().await.unwrap();
    locks.shutdown().await;
    let refused = detach(Ok(guard), async |guard| guard.err()).await;
    assert!(matches!(refused, Some(LockError::ShutDown)), "{refused:?}");
    assert!(!is_held(&nodes));
}

fn spawn_shutdown(locks: &LockManager) -> JoinHandle<()> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.shutdown().await })
}
