//! Waits without a limit, while no quorum of nodes answers, in paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use redlock_logs::Logs;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::tests::{SECOND, acquisitions, nodes, settle};
use crate::node::fake::{FakeMode, FakeNode};
use crate::test_util::TestLocks;
use crate::{LockError, LockGuard, LockManager, LockRequest, RunError};

const UP: FakeMode = FakeMode::Up(Duration::ZERO);
const TEN_MINUTES: Duration = Duration::from_secs(600);
const BEGIN: &str = "goes on to wait until a quorum of nodes answers";
const END: &str = "a quorum of nodes has answered a caller that waits for ever for a lock";

fn set(nodes: &[Arc<FakeNode>], mode: FakeMode) {
    for node in nodes {
        node.set(mode);
    }
}

fn start(locks: &LockManager) -> JoinHandle<Result<LockGuard, LockError>> {
    tokio::spawn(locks.lock("a").expire(SECOND).wait_forever().acquire())
}

/// As a lock of `tokio` or `std`. Everything else asks once.
#[tokio::test(start_paused = true)]
async fn acquire_waits_until_the_lock_is_free_unless_a_waiting_time_is_set() {
    for fair in [false, true] {
        let (locks, nodes) = nodes(3);
        let request = || locks.lock("a").expire(SECOND).fair(fair);
        for node in &nodes {
            node.occupy(3 * TEN_MINUTES);
        }
        let waiter = tokio::spawn(request().acquire());
        sleep(2 * TEN_MINUTES).await;
        assert!(!waiter.is_finished(), "{:?}", waiter.now_or_never());
        let begun = Instant::now();
        let none = request().wait_time(Duration::ZERO);
        for refused in [none.acquire().await, request().try_acquire().await] {
            assert!(refused.as_ref().is_err_and(LockError::is_contended), "{refused:?}");
        }
        let run = request().run(async |_| ()).await;
        assert!(matches!(run, Err(RunError::Acquire(LockError::Contended { .. }))), "{run:?}");
        let run = request().run_detached(async |_| ()).await;
        assert!(matches!(run, Err(RunError::Acquire(LockError::Contended { .. }))), "{run:?}");
        assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
        let short = request().wait_time(SECOND).acquire().await.unwrap_err();
        assert!(short.is_contended(), "{short:?}");
        timeout(2 * TEN_MINUTES, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
    }
}

/// A leader's standby that gives up never leads again.
#[tokio::test(start_paused = true)]
async fn a_wait_without_a_limit_outlasts_every_outage_and_logs_its_begin_and_its_end() {
    for mode in [
        FakeMode::Down,
        FakeMode::Unreachable,
        FakeMode::Broken,
        FakeMode::Frozen,
        FakeMode::AnswerLost,
        FakeMode::TimedOut,
        FakeMode::Quarantined,
        FakeMode::WrongPassword,
    ] {
        for (count, affected) in [(1, 1), (3, 2)] {
            for begins_in_outage in [false, true] {
                let case = format!("{mode:?}, {affected} of {count}, {begins_in_outage}");
                let (logs, (locks, nodes)) = (Logs::collect(), nodes(count));
                if !begins_in_outage {
                    for node in &nodes {
                        node.occupy(2 * TEN_MINUTES);
                    }
                }
                let before = (!begins_in_outage).then(|| start(&locks));
                sleep(SECOND).await;
                set(&nodes[..affected], mode);
                settle().await;
                let waiter = before.unwrap_or_else(|| start(&locks));
                sleep(TEN_MINUTES / 10).await;
                assert!(!waiter.is_finished(), "{case}: {:?}", waiter.now_or_never());
                assert_eq!((logs.count("WARN", BEGIN), logs.count("INFO", END)), (1, 0), "{case}");
                set(&nodes, UP);
                for node in &nodes {
                    node.forget();
                }
                let guard = timeout(SECOND, waiter).await.expect(&case).unwrap().unwrap();
                assert_eq!((logs.count("WARN", BEGIN), logs.count("INFO", END)), (1, 1), "{case}");
                let lines = logs.lines();
                let mut ends =
                    lines.iter().filter(|line| line.contains(BEGIN) || line.contains(END));
                assert!(ends.all(|line| line.contains(" lock=a ")), "{case}: {lines:?}");
                guard.release().await.unwrap();
                settle().await;
                assert!(locks.queues().is_empty(), "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_lock_is_waited_for_through_an_outage_and_in_the_order_of_arrival() {
    let requests: [fn(&LockManager) -> LockRequest; 5] = [
        |locks| locks.lock("a"),
        |locks| locks.lock("a").fair(true),
        |locks| locks.lock("a").fenced(true),
        |locks| locks.lock("a").shared(true),
        |locks| locks.lock_all(["a", "b"]),
    ];
    for (kind, request) in requests.iter().enumerate() {
        for (count, failed) in [(1, 1), (3, 2)] {
            let test = TestLocks::new(count);
            let (locks, others) = (test.manager(), test.builder().connect().await.unwrap());
            let held = others.lock("a").try_acquire().await.unwrap();
            let early = tokio::spawn(request(&locks).wait_forever().acquire());
            settle().await;
            for node in &test.nodes()[..failed] {
                node.fail();
            }
            drop(held);
            let late = tokio::spawn(request(&locks).wait_forever().acquire());
            sleep(60 * SECOND).await;
            assert!(!early.is_finished() && !late.is_finished(), "{kind}, {count} nodes");
            for node in test.nodes() {
                node.recover();
            }
            let early = timeout(40 * SECOND, early).await.unwrap().unwrap().unwrap();
            early.release().await.unwrap();
            drop(timeout(SECOND, late).await.unwrap().unwrap().unwrap());
        }
    }
}

/// Nodes that come back must not meet a flood.
#[tokio::test(start_paused = true)]
async fn only_the_first_of_many_waiters_asks_in_an_outage_and_seldom() {
    const WAITERS: usize = 100;
    let (locks, nodes) = nodes(1);
    nodes[0].occupy(2 * TEN_MINUTES);
    let waiters: Vec<_> = (0..WAITERS).map(|_| start(&locks)).collect();
    settle().await;
    let before = acquisitions(&nodes[0]);
    // The node executes the operations, and its replies are lost.
    set(&nodes, FakeMode::AnswerLost);
    sleep(60 * SECOND).await;
    let asked = acquisitions(&nodes[0]) - before;
    assert!((60..=60 * 6).contains(&asked), "{asked} questions in a minute");
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_a_limit_ends_by_a_missing_right_and_by_the_end_of_the_manager() {
    for is_waiting_before in [false, true] {
        let (locks, nodes) = nodes(3);
        for node in &nodes {
            node.occupy(TEN_MINUTES);
        }
        let before = is_waiting_before.then(|| start(&locks));
        settle().await;
        set(&nodes[1..], FakeMode::Forbidden);
        let waiter = before.unwrap_or_else(|| start(&locks));
        let error = timeout(SECOND, waiter).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(error.diagnostics().to_string().contains("not permitted"), "{error:?}");
    }
    for mode in [FakeMode::Down, FakeMode::Frozen, FakeMode::WrongPassword] {
        for drains in [false, true] {
            let (locks, nodes) = nodes(1);
            set(&nodes, mode);
            let waiters = [start(&locks), start(&locks)];
            sleep(SECOND).await;
            if drains {
                drop(locks.drain());
            } else {
                locks.shutdown().await;
            }
            for waiter in waiters {
                let error = timeout(SECOND, waiter).await.unwrap().unwrap().unwrap_err();
                let is_expected = match error {
                    LockError::Draining => drains,
                    LockError::ShutDown => !drains,
                    _ => false,
                };
                assert!(is_expected, "{mode:?}: {error:?}");
            }
        }
    }
}

/// A lease that ends before a quorum has granted it is no reason to end the wait.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_too_slow_for_the_lease_do_not_end_a_wait_without_a_limit() {
    let (locks, nodes) = nodes(1);
    set(&nodes, FakeMode::Up(2 * SECOND));
    nodes[0].set_reports_silence(false);
    let waiter = start(&locks);
    sleep(60 * SECOND).await;
    assert!(!waiter.is_finished());
    set(&nodes, UP);
    drop(timeout(5 * SECOND, waiter).await.unwrap().unwrap().unwrap());
}

/// Each attempt leaves a release in the home, which runs when a thread drives the home.
#[test]
fn a_waiter_asks_once_while_no_thread_drives_the_home() {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (home, other) = (runtime(), runtime());
    let (locks, nodes) = home.block_on(async {
        let (locks, nodes) = nodes(1);
        locks.lock("a").try_acquire().await.unwrap().release().await.unwrap();
        (locks, nodes)
    });
    let before = acquisitions(&nodes[0]);
    nodes[0].set_reports_silence(false);
    let entered = other.enter();
    let waiter = start(&locks);
    drop(entered);
    other.block_on(async { sleep(TEN_MINUTES).await });
    home.block_on(settle());
    assert_eq!(acquisitions(&nodes[0]) - before, 1);
    while !waiter.is_finished() {
        other.block_on(settle());
        home.block_on(settle());
    }
    let guard = waiter.now_or_never().unwrap().unwrap().unwrap();
    home.block_on(guard.release()).unwrap();
}

/// The waiter is in no line while the nodes confirm the number of its lock, so nobody notifies it.
#[tokio::test(start_paused = true)]
async fn a_caller_whose_hand_over_fails_does_not_outlast_a_drain_or_a_shutdown() {
    for is_drain in [false, true] {
        let test = TestLocks::new(3);
        let locks = test.manager();
        let request = || locks.lock("a").expire(60 * SECOND).fenced(true);
        let holder = request().try_acquire().await.unwrap();
        let waiter = tokio::spawn(request().wait_forever().acquire());
        settle().await;
        for node in test.nodes() {
            node.delay(SECOND / 50);
        }
        holder.release().await.unwrap();
        settle().await;
        let end = locks.clone();
        let end = tokio::spawn(async move {
            if is_drain {
                drop(end.drain());
            } else {
                end.shutdown().await;
            }
        });
        settle().await;
        for node in test.nodes() {
            node.fail();
        }
        let error =
            timeout(10 * SECOND, waiter).await.expect("the wait ends").unwrap().unwrap_err();
        let is_expected = match error {
            LockError::Draining => is_drain,
            LockError::ShutDown => !is_drain,
            _ => false,
        };
        assert!(is_expected, "drain: {is_drain}, {error:?}");
        end.await.unwrap();
    }
}
