//! Running work under a lock, with nodes in memory and in paused time.

use std::fmt::Debug;
use std::future::{pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use redlock_logs::Logs;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::fake::RuntimeClock;
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode, Operation};
use crate::{
    LockError, LockHandle, LockManager, LockManagerBuilder, LockRequest, LockState, OnLost,
    RunError, scope,
};

pub(super) const LEASE: Duration = Duration::from_secs(5);
pub(super) const DELAY: Duration = Duration::from_millis(10);
/// A test fails if it waits for longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a manager on nodes that reply after [`DELAY`], and the nodes.
pub(super) fn over(count: usize) -> (LockManager, Vec<Arc<FakeNode>>) {
    let fakes: Vec<_> = (0..count).map(|number| FakeNode::start(&number.to_string())).collect();
    for node in &fakes {
        node.set(FakeMode::Up(DELAY));
    }
    let nodes = fakes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
    (LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new())), fakes)
}

pub(super) fn request(locks: &LockManager) -> LockRequest {
    locks.lock("a").expire(LEASE)
}

pub(super) fn is_held(nodes: &[Arc<FakeNode>]) -> bool {
    nodes.iter().any(|node| node.is_held())
}

/// Waits until the lock is released on all nodes, which happens long before its lease ends.
pub(super) async fn until_free(nodes: &[Arc<FakeNode>]) {
    let free = async {
        while is_held(nodes) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LEASE / 2, free).await.expect("the lock was not released");
}

/// Returns the error of an acquisition that failed.
fn refusal<T: Debug>(result: Result<T, RunError>) -> LockError {
    match result {
        Err(RunError::Acquire(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// The nodes reply after the end of the waiting time.
#[tokio::test(start_paused = true)]
async fn a_caller_does_not_ask_again_after_its_waiting_time() {
    for is_late in [true, false] {
        let (locks, nodes) = over(3);
        for node in &nodes {
            node.set(FakeMode::Frozen);
            node.set_reconnects_after(Some(Duration::ZERO));
        }
        let wait_time = if is_late { DELAY } else { PATIENCE };
        let acquire = request(&locks).wait_time(wait_time).acquire();
        let answer = async {
            sleep(2 * DELAY).await;
            for node in &nodes {
                node.set(FakeMode::AnswerLost);
            }
        };
        let (acquired, ()) = tokio::join!(acquire, answer);
        assert!(matches!(acquired, Err(LockError::Unavailable { .. })), "{acquired:?}");
        let is_acquisition = |operation: &&Operation| matches!(operation, Operation::Acquire(..));
        let count = nodes[0].log().iter().filter(is_acquisition).count();
        assert_eq!(count > 1, !is_late, "{count} rounds");
    }
}

/// Sets the flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// No work without the lock.
#[tokio::test(start_paused = true)]
async fn work_is_not_run_without_its_lock() {
    let (locks, nodes) = over(3);
    let work = async |_| unreachable!("the work ran without its lock");

    let holder = request(&locks).try_acquire().await.unwrap();
    let error = refusal(request(&locks).run(work).await);
    assert!(error.is_contended(), "{error:?}");
    let error = refusal(request(&locks).fenced(true).run(work).await);
    assert!(error.is_contended(), "{error:?}");
    holder.release().await.unwrap();

    let error = refusal(locks.lock("a").expire(Duration::ZERO).run(work).await);
    assert!(matches!(error, LockError::InvalidOption(_)), "{error:?}");

    for node in &nodes {
        node.set(FakeMode::Down);
    }
    let error = refusal(request(&locks).run(work).await);
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn work_waits_for_its_lock_up_to_the_wait_time() {
    let (locks, _nodes) = over(1);
    let holder = request(&locks).try_acquire().await.unwrap();
    let release = async {
        sleep(Duration::from_secs(1)).await;
        holder.release().await.unwrap();
    };
    let waiting = request(&locks).wait_time(2 * LEASE).run(async |lock| lock.is_valid());
    let (ran, ()) = tokio::join!(waiting, release);
    assert!(ran.unwrap());
}

/// The nodes reply late, so a release in the background would still be pending.
#[tokio::test(start_paused = true)]
async fn the_release_is_awaited_whatever_the_work_returns() {
    let (locks, nodes) = over(1);
    for result in [Ok(1), Err("the work failed")] {
        let (returned, lock) = request(&locks)
            .run(async |lock| {
                assert!(lock.is_valid() && is_held(&nodes));
                sleep(DELAY).await;
                (result, lock)
            })
            .await
            .unwrap();
        assert!(!is_held(&nodes));
        assert_eq!(lock.state(), LockState::Released);
        assert_eq!(returned, result);
        // Another process, which no hand-over serves, gets the lock at its first attempt.
        let dynamic = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
        let other = LockManagerBuilder::with_nodes(dynamic, Arc::new(RuntimeClock::new()));
        request(&other).try_acquire().await.unwrap().release().await.unwrap();
        request(&locks).fenced(true).run(async |_| sleep(DELAY).await).await.unwrap();
        assert!(!is_held(&nodes));
    }
}

/// The work is done, and its result stays valid.
#[tokio::test(start_paused = true)]
async fn a_failed_release_is_logged_and_the_result_is_returned() {
    let logs = Logs::collect();
    let (locks, nodes) = over(1);
    let output = request(&locks)
        .run(async |_| {
            nodes[0].set(FakeMode::Frozen);
            7
        })
        .await;
    assert_eq!(output.unwrap(), 7);
    let lines = logs.lines();
    let failed = |line: &&String| line.contains("the release of a lock failed after its work");
    let failed: Vec<_> = lines.iter().filter(failed).collect();
    assert!(
        matches!(failed[..], [line] if line.contains("WARN") && line.contains(" lock=a")),
        "{lines:?}"
    );
    nodes[0].set(FakeMode::Up(DELAY));
    until_free(&nodes).await;
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_releases_its_lock() {
    async fn panics(now: bool) -> u32 {
        assert!(!now, "at once");
        sleep(DELAY).await;
        panic!("after an await")
    }

    let (locks, nodes) = over(3);
    let in_the_closure =
        request(&locks).run(|_| -> std::future::Ready<u32> { panic!("no future") });
    assert!(AssertUnwindSafe(in_the_closure).catch_unwind().await.is_err());
    until_free(&nodes).await;
    for now in [true, false] {
        let run = request(&locks).run(async |_| panics(now).await);
        assert!(AssertUnwindSafe(run).catch_unwind().await.is_err());
        until_free(&nodes).await;
        let run = request(&locks).fenced(true).run(async |_| panics(now).await);
        assert!(AssertUnwindSafe(run).catch_unwind().await.is_err());
        until_free(&nodes).await;
    }
    assert!(locks.queues().is_empty());
}

/// The nodes forget the lock, and the next renewal reports that.
#[tokio::test(start_paused = true)]
async fn work_whose_lock_is_lost_is_dropped_on_request() {
    let (locks, nodes) = over(3);
    let dropped = AtomicBool::new(false);
    let begun = Instant::now();
    let work = async |_| {
        let _dropped = SetOnDrop(&dropped);
        for node in &nodes {
            node.forget();
        }
        pending::<()>().await;
    };
    let lost = request(&locks).renew(true).on_lost(OnLost::Abort).run(work);
    let lost = timeout(PATIENCE, lost).await.unwrap();
    let Err(RunError::Lost(error)) = lost else { panic!("{lost:?}") };
    assert_eq!(error.key().as_str(), "a");
    assert!(dropped.load(Ordering::Relaxed));
    assert!(begun.elapsed() < LEASE, "{:?}", begun.elapsed());

    // The lease runs out.
    let lost =
        request(&locks).on_lost(OnLost::Abort).clone().fenced(true).run(async |_| pending().await);
    let lost: Result<(), _> = timeout(PATIENCE, lost).await.unwrap();
    assert!(matches!(lost, Err(RunError::Lost(_))), "{lost:?}");
    until_free(&nodes).await;
    assert!(locks.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn work_whose_lock_is_lost_goes_on_by_default() {
    let (locks, _nodes) = over(3);
    let work = async |lock: LockHandle| {
        lock.lost().await;
        sleep(LEASE).await;
        lock.state()
    };
    assert_eq!(request(&locks).run(work).await.unwrap(), LockState::Lost);
    let keep_going = request(&locks).on_lost(OnLost::Abort).on_lost(OnLost::KeepGoing);
    assert_eq!(keep_going.clone().run(work).await.unwrap(), LockState::Lost);
    let fenced = keep_going.fenced(true).run(work);
    assert_eq!(fenced.await.unwrap(), LockState::Lost);
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_before_a_loss_returns_its_result() {
    let (locks, nodes) = over(3);
    let output = request(&locks).on_lost(OnLost::Abort).run(async |_| "done").await;
    assert_eq!(output.unwrap(), "done");
    assert!(!is_held(&nodes));
}

/// Dropping is always safe. The work ends before its lock is free.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_at_any_poll_leaves_nothing_behind() {
    for (on_lost, fenced) in
        [(OnLost::KeepGoing, false), (OnLost::Abort, false), (OnLost::Abort, true)]
    {
        for polls in 0.. {
            let (locks, nodes) = over(3);
            let dropped_while_held = AtomicUsize::new(0);
            let work = async |lock: LockHandle| {
                struct OnDrop<'a>(LockHandle, &'a AtomicUsize);
                impl Drop for OnDrop<'_> {
                    fn drop(&mut self) {
                        assert_eq!(self.0.state(), LockState::Held, "the work outlived its lock");
                        self.1.fetch_add(1, Ordering::Relaxed);
                    }
                }
                let _on_drop = OnDrop(lock, &dropped_while_held);
                sleep(DELAY).await;
            };
            let request = request(&locks).on_lost(on_lost);
            let mut run = if fenced {
                request.fenced(true).run(work).boxed_local()
            } else {
                request.run(work).boxed_local()
            };
            let mut polled = 0;
            let completed = poll_fn(|cx| {
                if polled == polls {
                    return Poll::Ready(false);
                }
                polled += 1;
                run.as_mut().poll(cx).map(|ended| ended.is_ok())
            })
            .await;
            drop(run);
            until_free(&nodes).await;
            assert!(locks.queues().is_empty(), "dropped after {polls} polls");
            if completed {
                assert!(polls > 3);
                assert_eq!(dropped_while_held.into_inner(), 1);
                break;
            }
            assert!(polls < 100, "the future never completes");
        }
    }
}

/// Otherwise the inner request would wait for itself for ever.
#[tokio::test(start_paused = true)]
async fn a_second_lock_of_the_same_key_is_refused_or_shared_inside_of_the_work() {
    let (locks, nodes) = over(1);
    let again = || request(&locks).wait_forever();
    let work = async |lock: LockHandle| {
        let acquired = again().acquire().now_or_never().expect("at once");
        assert!(matches!(acquired, Err(LockError::AlreadyHeld { .. })), "{acquired:?}");
        let error = refusal(again().run(async |_| ()).now_or_never().expect("at once"));
        assert!(matches!(error, LockError::AlreadyHeld { .. }), "{error:?}");
        again().reentrant(true).run(async |shared| assert!(shared.is_valid())).await.unwrap();
        assert!(lock.is_valid() && is_held(&nodes), "the shared lock was released");
    };
    request(&locks).run(work).await.unwrap();
    assert!(!is_held(&nodes));
    request(&locks).fenced(true).run(work).await.unwrap();
    // Inside of another scope, the work belongs to that scope.
    scope(async {
        let guard = request(&locks).try_acquire().await.unwrap();
        let error = refusal(again().run(async |_| ()).await);
        assert!(matches!(error, LockError::AlreadyHeld { .. }), "{error:?}");
        guard.release().await.unwrap();
    })
    .await;
    // Two runs that are joined are two holders, outside of any scope.
    let run = || again().run(async |_| sleep(DELAY).await);
    let (one, two) = timeout(PATIENCE, async { tokio::join!(run(), run()) }).await.unwrap();
    one.and(two).unwrap();
}
