//! The drain of a manager: its holders finish, and nobody else gets a lock, in paused time.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::tests::{SECOND, nodes, settle, two_processes};
use crate::jitter::jitter;
use crate::node::fake::FakeMode;
use crate::test_util::TestLocks;
use crate::{LockError, LockManager, LockRequest, OnLost, RunError, scope};

const LEASE: Duration = Duration::from_secs(3);

fn is_draining<T>(result: &Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::Draining))
}

/// The requests of each way to wait.
const REQUESTS: [fn(&LockManager) -> LockRequest; 6] = [
    |locks| locks.lock("a"),
    |locks| locks.lock("a").fair(true),
    |locks| locks.lock("a").fenced(true),
    |locks| locks.lock("a").shared(true),
    |locks| locks.lock("a").permits(1),
    |locks| locks.lock_all(["a", "b"]),
];

#[tokio::test(start_paused = true)]
async fn a_drain_refuses_new_and_waiting_requests_and_lets_the_holder_finish() {
    for (kind, request) in REQUESTS.iter().enumerate() {
        for is_held_here in [true, false] {
            let test = TestLocks::new(1);
            let (locks, others) = (test.manager(), test.builder().connect().await.unwrap());
            let holder = if is_held_here { &locks } else { &others };
            let held = tokio::spawn(holder.lock("a").expire(LEASE).renew(true).try_acquire());
            let held = held.await.unwrap().unwrap();
            let waiters: Vec<_> =
                (0..3).map(|_| tokio::spawn(request(&locks).wait_forever().acquire())).collect();
            sleep(SECOND).await;
            assert!(locks.is_granting());
            let begun = Instant::now();
            drop(locks.drain());
            for waiter in waiters {
                let refused = waiter.await.unwrap();
                assert!(is_draining(&refused), "{kind}: {refused:?}");
            }
            for request in [request(&locks), request(&locks).wait_forever(), locks.lock("new")] {
                let refused = tokio::spawn(request.acquire()).await.unwrap();
                assert!(is_draining(&refused), "{kind}: {refused:?}");
            }
            assert_eq!(begun.elapsed(), Duration::ZERO, "{kind}");
            assert!(!locks.is_granting() && locks.is_available());
            // The holder's lease is renewed.
            sleep(3 * LEASE).await;
            assert!(held.is_valid(), "{kind}");
            held.release().await.unwrap();
            settle().await;
            assert!(test.nodes()[0].is_empty(), "{kind}");
            assert!(locks.queues().is_empty(), "{kind}");
        }
    }
}

/// Two other callers have a node each, so the votes are split, and the caller repeats its attempt after a pause.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_repetitions_of_a_split_vote() {
    let (locks, nodes) = nodes(3);
    for (node, other) in nodes.iter().zip(["one", "two"]) {
        node.occupy_by(other, 60 * SECOND);
    }
    let caller = tokio::spawn(locks.lock("a").try_acquire());
    settle().await;
    drop(locks.drain());
    nodes[..2].iter().for_each(|node| node.forget());
    let refused = caller.await.unwrap();
    assert!(is_draining(&refused), "{refused:?}");
}

/// Acquires an order, and then an article, of which there are few, so that the callers wait for each other.
async fn nested(locks: LockManager, number: u64) -> Result<(), LockError> {
    sleep(jitter(Duration::ZERO..SECOND)).await;
    let outer = locks.lock(format!("order:{number}")).wait_forever().acquire().await?;
    sleep(jitter(Duration::ZERO..SECOND / 10)).await;
    let inner = locks.lock(format!("stock:{}", number % 10)).wait_forever().acquire().await;
    let inner = inner.unwrap_or_else(|error| panic!("refused under a lock: {error}"));
    sleep(jitter(Duration::ZERO..SECOND / 10)).await;
    inner.release().await.unwrap();
    outer.release().await.unwrap();
    Ok(())
}

/// Handlers with two nested locks, drained at a random time. The holder is known by its scope, and without one by its task.
#[tokio::test(start_paused = true)]
async fn work_that_holds_a_lock_gets_its_further_locks_during_a_drain() {
    const HANDLERS: u64 = 200;
    for in_scope in [true, false] {
        let (locks, _, stores) = two_processes(1);
        let handlers: Vec<_> = (0..HANDLERS)
            .map(|number| {
                let run = nested(locks.clone(), number);
                if in_scope { tokio::spawn(scope(run)) } else { tokio::spawn(run) }
            })
            .collect();
        sleep(jitter(SECOND / 2..SECOND)).await;
        let drained = locks.drain();
        timeout(60 * SECOND, drained).await.unwrap();
        let (mut served, mut refused) = (0, 0);
        for handler in handlers {
            match handler.await.unwrap() {
                Ok(()) => served += 1,
                Err(LockError::Draining) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
        assert!(stores[0].is_empty() && locks.queues().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn another_task_or_scope_than_that_of_the_holder_is_refused() {
    let (locks, _, _) = two_processes(1);
    let (may_end, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (of_task, ends) = (locks.clone(), Arc::clone(&end));
    let has_lock = Arc::clone(&may_end);
    let holder = tokio::spawn(scope(async move {
        let guard = of_task.lock("a").try_acquire().await.unwrap();
        has_lock.notify_one();
        ends.notified().await;
        // Work that it spawns is another caller.
        let other = tokio::spawn(of_task.lock("c").try_acquire()).await.unwrap();
        assert!(is_draining(&other), "{other:?}");
        let lost = guard.lost();
        guard.release().await.unwrap();
        drop(lost);
        // It holds nothing any more.
        let refused = of_task.lock("c").try_acquire().await;
        assert!(is_draining(&refused), "{refused:?}");
    }));
    may_end.notified().await;
    drop(locks.drain());
    let refused = tokio::spawn(scope(locks.lock("b").try_acquire())).await.unwrap();
    assert!(is_draining(&refused), "{refused:?}");
    end.notify_one();
    holder.await.unwrap();
}

/// One task serves the requests of a connection one after another. The first has moved its guard into work that goes on.
#[tokio::test(start_paused = true)]
async fn a_lock_that_has_outlived_its_scope_serves_no_later_scope_of_its_task() {
    let (locks, _, _) = two_processes(1);
    let moved = scope(locks.lock("a").try_acquire()).await.unwrap();
    drop(locks.drain());
    for _ in 0..10 {
        let refused = scope(locks.lock("b").try_acquire()).await;
        assert!(is_draining(&refused), "{refused:?}");
    }
    drop(locks.lock("b").try_acquire().await.expect("outside of a scope, the task counts"));
    drop(moved);
}

/// The drain serves other waiting requests of this scope, but a leader does not wait for its term any more.
#[tokio::test(start_paused = true)]
async fn a_standby_whose_scope_holds_another_lock_ends_at_the_drain() {
    let (locks, other_copy, _) = two_processes(1);
    let leader = tokio::spawn(other_copy.lead("reports").run(async |_| pending::<()>().await));
    sleep(SECOND).await;
    let here = locks.clone();
    let standby = tokio::spawn(scope(async move {
        let held = here.lock("held").expire(60 * SECOND).acquire().await.unwrap();
        let ended = here.lead("reports").run(async |_| ()).await;
        assert!(held.is_valid());
        ended
    }));
    sleep(SECOND).await;
    drop(locks.drain());
    let ended = timeout(SECOND, standby).await.expect("the drain ends the wait").unwrap();
    assert!(is_draining(&ended), "{ended:?}");
    assert!(!leader.is_finished());
}

/// A released lock would otherwise go to waiters that hold another lock, before those of other processes. Without the drain, it
/// does.
#[tokio::test(start_paused = true)]
async fn a_lock_is_not_handed_over_during_a_drain_and_its_release_is_published() {
    for (count, drains) in [(1, true), (3, true), (1, false), (3, false)] {
        let (here, there, _) = two_processes(count);
        let held = here.lock("a").expire(LEASE).try_acquire().await.unwrap();
        let waiter = tokio::spawn({
            let here = here.clone();
            async move {
                let _other = here.lock("b").try_acquire().await.unwrap();
                here.lock("a").expire(LEASE).wait_forever().acquire().await
            }
        });
        settle().await;
        let elsewhere = tokio::spawn(there.lock("a").expire(LEASE).wait_forever().acquire());
        settle().await;
        if drains {
            drop(here.drain());
        }
        let released = Instant::now();
        held.release().await.unwrap();
        if !drains {
            drop(waiter.await.unwrap().unwrap());
            assert!(!elsewhere.is_finished(), "the lock was not handed over");
            continue;
        }
        let elsewhere = elsewhere.await.unwrap().unwrap();
        assert_eq!(released.elapsed(), Duration::ZERO, "the release was not published");
        assert!(!waiter.is_finished(), "the lock was handed over");
        elsewhere.release().await.unwrap();
        drop(timeout(SECOND, waiter).await.unwrap().unwrap().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn the_drain_is_over_when_the_last_lock_is_released_and_detached_work_goes_on() {
    let (locks, nodes) = nodes(3);
    let work = locks.lock("a").expire(LEASE).renew(true).on_lost(OnLost::Abort);
    let run = work.run_detached(async |_| sleep(10 * SECOND).await);
    assert!(timeout(SECOND, run).await.is_err(), "its caller leaves");
    let mut drained = locks.drain();
    assert!(timeout(8 * SECOND, &mut drained).await.is_err());
    timeout(2 * SECOND, drained).await.expect("the work has ended");
    assert!(nodes.iter().all(|node| !node.is_held()));
    timeout(SECOND, locks.drain()).await.expect("no lock is held");
    locks.shutdown().await;
    let refused = locks.lock("a").run(async |_| ()).await;
    assert!(matches!(refused, Err(RunError::Acquire(LockError::ShutDown))), "{refused:?}");
}

/// The caller waits for an attempt to connect.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_wait_for_a_connection() {
    let (locks, nodes) = nodes(1);
    nodes[0].set(FakeMode::Down);
    nodes[0].set_reconnects_after(Some(3600 * SECOND));
    let waiter = tokio::spawn(locks.lock("a").wait_time(60 * SECOND).acquire());
    settle().await;
    assert!(!waiter.is_finished());
    let begun = Instant::now();
    drop(locks.drain());
    let refused = waiter.await.unwrap();
    assert!(is_draining(&refused), "{refused:?}");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
