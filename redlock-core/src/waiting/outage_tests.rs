//! Waiters while no quorum of nodes replies, in paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::tests::{SECOND, acquisitions, nodes, settle, wait};
use crate::clock::fake::RuntimeClock;
use crate::lock::{LockSpec, Mode};
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode};
use crate::{Dialect, LockError, LockGuard, LockKey, LockManager};

const MILLI: Duration = Duration::from_millis(1);
const UP: FakeMode = FakeMode::Up(Duration::ZERO);

fn occupy(nodes: &[Arc<FakeNode>]) {
    for node in nodes {
        node.occupy(3600 * SECOND);
    }
}

fn forget(nodes: &[Arc<FakeNode>]) {
    for node in nodes {
        node.forget();
    }
}

fn set(nodes: &[Arc<FakeNode>], mode: FakeMode) {
    for node in nodes {
        node.set(mode);
    }
}

/// Returns a manager on nodes on which another process holds the lock, and the nodes.
fn held_elsewhere(count: usize) -> (LockManager, Vec<Arc<FakeNode>>) {
    let (locks, nodes) = nodes(count);
    occupy(&nodes);
    (locks, nodes)
}

/// The task of a waiter. It returns the result of the acquisition, and when it ended.
type WaiterTask = JoinHandle<(Result<LockGuard, LockError>, Instant)>;

fn waiter(locks: &LockManager) -> WaiterTask {
    let locks = locks.clone();
    tokio::spawn(async move { (wait(&locks, "a").await, Instant::now()) })
}

/// Starts a waiter that has been refused once. It asks the nodes again within half a second.
async fn refused_waiter(locks: &LockManager) -> WaiterTask {
    let waiter = waiter(locks);
    sleep(SECOND).await;
    waiter
}

fn is_unavailable(result: &Result<LockGuard, LockError>) -> bool {
    matches!(result, Err(LockError::Unavailable { .. }))
}

#[tokio::test(start_paused = true)]
async fn a_waiter_outlasts_a_short_outage() {
    for mode in [FakeMode::Down, FakeMode::Broken, FakeMode::Frozen, FakeMode::AnswerLost] {
        for (count, affected) in [(1, 1), (3, 2), (3, 3)] {
            let (locks, nodes) = held_elsewhere(count);
            let waiter = refused_waiter(&locks).await;
            set(&nodes[..affected], mode);
            sleep(1500 * MILLI).await;
            assert!(!waiter.is_finished(), "{mode:?}, {affected} of {count}");
            set(&nodes, UP);
            sleep(SECOND).await;
            assert!(
                !waiter.is_finished(),
                "{mode:?}, {affected} of {count}: another process holds the lock"
            );
            forget(&nodes);
            let (acquired, _) = timeout(SECOND, waiter).await.unwrap().unwrap();
            acquired.unwrap().release().await.unwrap();
            assert!(locks.queues().is_empty());
        }
    }
}

/// A caller of this process holds the lock when the nodes go down. Its release fails, and its lease
/// ends before the nodes are up again.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_holder_of_this_process_outlasts_a_short_outage() {
    let (locks, nodes) = nodes(3);
    let holder = locks.lock("a").expire(SECOND).try_acquire().await.unwrap();
    let waiter = waiter(&locks);
    settle().await;
    set(&nodes, FakeMode::Down);
    holder.release().await.unwrap_err();
    sleep(1500 * MILLI).await;
    assert!(!waiter.is_finished());
    set(&nodes, UP);
    drop(timeout(SECOND, waiter).await.unwrap().unwrap().0.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_as_soon_as_a_quorum_is_up_again() {
    let (locks, nodes) = held_elsewhere(3);
    let waiter = refused_waiter(&locks).await;
    forget(&nodes);
    set(&nodes, FakeMode::Down);
    sleep(1500 * MILLI).await;
    nodes[0].set(UP);
    settle().await;
    assert!(!waiter.is_finished(), "one of three is no quorum");
    nodes[1].set(UP);
    let back = Instant::now();
    let (acquired, at) = waiter.await.unwrap();
    drop(acquired.unwrap());
    assert_eq!(at, back);
}

#[tokio::test(start_paused = true)]
async fn a_longer_outage_ends_the_wait_after_the_grace() {
    for mode in [FakeMode::Down, FakeMode::Broken, FakeMode::Frozen, FakeMode::AnswerLost] {
        let (locks, nodes) = held_elsewhere(1);
        let waiter = refused_waiter(&locks).await;
        set(&nodes, mode);
        let down = Instant::now();
        let (result, at) = waiter.await.unwrap();
        assert!(is_unavailable(&result), "{mode:?}: {result:?}");
        let time = at - down;
        // A sleeping waiter notices the outage within half a second.
        assert!((2000 * MILLI..2600 * MILLI).contains(&time), "{mode:?}: {time:?}");
        assert!(locks.queues().is_empty(), "{mode:?}");
    }
}

/// The nodes may fail at once, or accept operations and never reply.
#[tokio::test(start_paused = true)]
async fn a_waiter_asks_the_nodes_seldom_during_an_outage() {
    for mode in [FakeMode::AnswerLost, FakeMode::Frozen] {
        let (locks, nodes) = held_elsewhere(1);
        let waiter = refused_waiter(&locks).await;
        let before = acquisitions(&nodes[0]);
        set(&nodes, mode);
        assert!(is_unavailable(&waiter.await.unwrap().0), "{mode:?}");
        set(&nodes, UP);
        settle().await;
        let attempts = acquisitions(&nodes[0]) - before;
        assert!((5..=30).contains(&attempts), "{mode:?}: {attempts} attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_time_also_ends_during_an_outage() {
    for grace in [2, 10] {
        let nodes = vec![FakeNode::start("0")];
        let shared = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
        let locks = LockManager::builder()
            .outage_grace(grace * SECOND)
            .build(shared, Arc::new(RuntimeClock::new()));
        nodes[0].occupy(3600 * SECOND);
        let begun = Instant::now();
        let request = || locks.lock("a").wait_time(3 * SECOND).acquire();
        let [first, queued] = [request(), request()]
            .map(|request| tokio::spawn(async move { (request.await, Instant::now()) }));
        sleep(1500 * MILLI).await;
        set(&nodes, FakeMode::Down);
        for waiter in [first, queued] {
            let (result, at) = waiter.await.unwrap();
            assert!(is_unavailable(&result), "{result:?}");
            assert_eq!((at - begun).as_millis(), 3000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_request_fails_at_once_during_an_outage() {
    // A sleeping waiter notices the outage within half a second.
    let cases = [(FakeMode::Down, 0), (FakeMode::Down, 600), (FakeMode::Broken, 600)];
    for (mode, after) in cases {
        for others_wait in [false, true] {
            let (locks, nodes) = held_elsewhere(3);
            let waiter = if others_wait { Some(refused_waiter(&locks).await) } else { None };
            set(&nodes[..2], mode);
            sleep(after * MILLI).await;
            let request = || locks.lock("a").wait_time(60 * SECOND);
            let other = locks.lock("b").wait_time(60 * SECOND);
            for request in [request(), other, locks.lock("a"), locks.lock("b")] {
                let result = request.acquire().now_or_never().expect("at once");
                assert!(is_unavailable(&result), "{mode:?}, others wait: {others_wait}");
            }
            let mut once = vec![request().try_acquire().boxed()];
            if mode == FakeMode::Down {
                once.push(request().fair(true).acquire().boxed());
            }
            for request in once {
                let result = request.now_or_never().expect("at once");
                assert!(is_unavailable(&result), "{mode:?}, others wait: {others_wait}");
            }
            assert!(waiter.is_none_or(|waiter| !waiter.is_finished()), "{mode:?}");
        }
    }
}

/// A ballot takes 50 ms on a frozen node. None of these requests has ever had a reply.
#[tokio::test(start_paused = true)]
async fn new_requests_that_queue_behind_each_other_fail_within_one_ballot_each() {
    let (locks, nodes) = held_elsewhere(1);
    set(&nodes, FakeMode::Frozen);
    let begun = Instant::now();
    let mut requests = Vec::new();
    for _ in 0..4 {
        requests.push(waiter(&locks));
        sleep(MILLI).await;
    }
    for (ballots, request) in (1..).zip(requests) {
        let (result, at) = request.await.unwrap();
        assert!(is_unavailable(&result));
        assert!(at - begun <= ballots * 60 * MILLI, "{:?}", at - begun);
    }
}

/// The nodes reply to a new request while the first waiter still pauses. If the waiter asked first, it would end the
/// outage itself, and the new request would queue behind it.
#[tokio::test(start_paused = true)]
async fn a_new_request_that_gets_a_reply_wakes_the_waiters_before_it() {
    let (locks, nodes) = held_elsewhere(1);
    let waiter = refused_waiter(&locks).await;
    set(&nodes, FakeMode::Unreachable);
    sleep(SECOND).await;
    let unsent = nodes[0].unsent();
    while nodes[0].unsent() == unsent {
        sleep(MILLI).await;
    }
    // The waiter has just asked, and the outage has lasted for half a second: it pauses for 50 ms or more.
    set(&nodes, UP);
    let before = acquisitions(&nodes[0]);
    let new = tokio::spawn({
        let locks = locks.clone();
        async move { wait(&locks, "a").await }
    });
    settle().await;
    let attempts = acquisitions(&nodes[0]) - before;
    assert!(
        attempts >= 2,
        "{attempts} attempts, expected one of the new request and one of the waiter"
    );
    nodes[0].forget();
    nodes[0].publish_release();
    settle().await;
    assert!(waiter.is_finished() && !new.is_finished(), "in the order of their arrival");
    drop(waiter.await.unwrap().0.unwrap());
    drop(new.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_waiters_of_a_lock_share_the_grace() {
    let (locks, nodes) = held_elsewhere(3);
    let first = refused_waiter(&locks).await;
    let others: Vec<_> = (0..900).map(|_| waiter(&locks)).collect();
    settle().await;
    set(&nodes, FakeMode::Down);
    let down = Instant::now();
    for waiter in std::iter::once(first).chain(others) {
        let (result, at) = waiter.await.unwrap();
        assert!(is_unavailable(&result), "{result:?}");
        assert!((2000 * MILLI..2600 * MILLI).contains(&(at - down)), "{:?}", at - down);
    }
    assert!(locks.queues().is_empty());
}

/// The grace does not start anew when the first waiter leaves.
#[tokio::test(start_paused = true)]
async fn the_next_waiter_has_the_rest_of_the_grace() {
    let (locks, nodes) = held_elsewhere(1);
    let first = refused_waiter(&locks).await;
    let second = waiter(&locks);
    settle().await;
    set(&nodes, FakeMode::Down);
    let down = Instant::now();
    sleep(1500 * MILLI).await;
    first.abort();
    let (result, at) = second.await.unwrap();
    assert!(is_unavailable(&result), "{result:?}");
    assert!((2000 * MILLI..2600 * MILLI).contains(&(at - down)), "{:?}", at - down);
}

#[tokio::test(start_paused = true)]
async fn each_outage_has_a_grace_of_its_own() {
    let (locks, nodes) = held_elsewhere(3);
    let waiter = refused_waiter(&locks).await;
    for _ in 0..3 {
        set(&nodes, FakeMode::Down);
        sleep(1500 * MILLI).await;
        set(&nodes, UP);
        sleep(SECOND).await;
    }
    assert!(!waiter.is_finished());
    forget(&nodes);
    drop(waiter.await.unwrap().0.unwrap());
}

/// The first waiter ends the first outage by acquiring the lock. The second waiter was never
/// refused.
#[tokio::test(start_paused = true)]
async fn the_next_waiter_has_a_new_grace_when_the_first_one_got_the_lock() {
    let (locks, nodes) = held_elsewhere(3);
    let first = refused_waiter(&locks).await;
    let second = waiter(&locks);
    settle().await;
    set(&nodes, FakeMode::Down);
    sleep(1500 * MILLI).await;
    forget(&nodes);
    set(&nodes, UP);
    let holder = first.await.unwrap().0.unwrap();
    sleep(SECOND).await;
    set(&nodes, FakeMode::Down);
    holder.release().await.unwrap_err();
    sleep(1500 * MILLI).await;
    assert!(!second.is_finished());
    set(&nodes, UP);
    drop(second.await.unwrap().0.unwrap());
}

/// A holder that overruns its lease keeps the queue of its key in place.
#[tokio::test(start_paused = true)]
async fn an_outage_is_forgotten_with_the_last_waiter() {
    let (locks, nodes) = nodes(1);
    let overrun = locks.lock("a").expire(SECOND / 10).try_acquire().await.unwrap();
    sleep(SECOND).await;
    occupy(&nodes);
    let waiter = refused_waiter(&locks).await;
    set(&nodes, FakeMode::Down);
    sleep(SECOND).await;
    let key = LockKey::new("a").unwrap();
    let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
    let has_outage = || locks.queues().lock(&spec).values().any(|queue| queue.outage().is_some());
    assert!(has_outage());
    waiter.abort();
    settle().await;
    assert_eq!(locks.queues().len(), 1);
    assert!(!has_outage());
    drop(overrun);
}

#[tokio::test(start_paused = true)]
async fn without_a_grace_the_first_ballot_without_a_quorum_ends_the_wait() {
    let nodes = vec![FakeNode::start("0")];
    let shared = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
    let locks = LockManager::builder()
        .outage_grace(Duration::ZERO)
        .build(shared, Arc::new(RuntimeClock::new()));
    nodes[0].occupy(3600 * SECOND);
    let waiters = [refused_waiter(&locks).await, waiter(&locks)];
    settle().await;
    set(&nodes, FakeMode::Down);
    let down = Instant::now();
    for waiter in waiters {
        let (result, at) = waiter.await.unwrap();
        assert!(is_unavailable(&result), "{result:?}");
        assert!(at - down <= 510 * MILLI, "{:?}", at - down);
    }
}

/// Waiting for the missing permission would only delay the error.
#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_no_outage() {
    for (forbidden, down, outlasts) in [(3, 0, false), (2, 0, false), (1, 1, true)] {
        let (locks, nodes) = held_elsewhere(3);
        let waiter = refused_waiter(&locks).await;
        set(&nodes[..forbidden], FakeMode::Forbidden);
        set(&nodes[forbidden..forbidden + down], FakeMode::Down);
        sleep(510 * MILLI).await;
        assert_eq!(!waiter.is_finished(), outlasts, "{forbidden} forbid, {down} are down");
    }
}

/// The operator changes the password on the nodes, and then in the file of this process.
#[tokio::test(start_paused = true)]
async fn a_waiter_outlasts_a_change_of_the_password() {
    let (locks, nodes) = held_elsewhere(3);
    let waiter = refused_waiter(&locks).await;
    set(&nodes, FakeMode::WrongPassword);
    sleep(510 * MILLI).await;
    assert!(!waiter.is_finished());
    forget(&nodes);
    set(&nodes, FakeMode::Up(Duration::ZERO));
    drop(waiter.await.unwrap().0.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_in_an_outage_leaves_nothing_behind() {
    for mode in [FakeMode::Down, FakeMode::Broken, FakeMode::Frozen] {
        for after in [600, 1000, 1900] {
            let (locks, nodes) = held_elsewhere(3);
            let waiter = refused_waiter(&locks).await;
            set(&nodes, mode);
            sleep(after * MILLI).await;
            waiter.abort();
            settle().await;
            assert!(locks.queues().is_empty(), "{mode:?} after {after} ms");
            set(&nodes, UP);
            forget(&nodes);
            // The next caller is not affected by the outage.
            locks.lock("a").wait_time(SECOND).acquire().await.unwrap().release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_all_waits_in_an_outage_at_once() {
    for mode in [FakeMode::Down, FakeMode::Broken] {
        let (locks, nodes) = held_elsewhere(3);
        let waiters = [refused_waiter(&locks).await, waiter(&locks)];
        settle().await;
        set(&nodes, mode);
        sleep(SECOND).await;
        let begun = Instant::now();
        locks.shutdown().await;
        for waiter in waiters {
            let (result, at) = waiter.await.unwrap();
            assert!(matches!(result, Err(LockError::ShutDown)), "{mode:?}: {result:?}");
            assert_eq!(at, begun, "{mode:?}");
        }
    }
}

/// The subscriptions ended with their connections. A release between the first attempt after the
/// outage and the new subscription would be missed, so the waiter makes a second attempt.
#[tokio::test(start_paused = true)]
async fn a_waiter_subscribes_again_after_an_outage_and_asks_once_more() {
    let (locks, nodes) = held_elsewhere(1);
    let _waiter = refused_waiter(&locks).await;
    assert_eq!(nodes[0].subscriptions(), 1);
    set(&nodes, FakeMode::Down);
    sleep(1500 * MILLI).await;
    let before = acquisitions(&nodes[0]);
    set(&nodes, UP);
    settle().await;
    assert_eq!(nodes[0].subscriptions(), 2);
    assert_eq!(acquisitions(&nodes[0]) - before, 2);
}

/// The requested lease of 30 ms is shorter than the time after which a frozen node counts as
/// silent. That is an outage all the same.
#[tokio::test(start_paused = true)]
async fn a_waiter_with_a_short_lease_outlasts_a_short_outage() {
    let (locks, nodes) = held_elsewhere(1);
    let lease = 30 * MILLI;
    let request = || locks.lock("a").expire(lease);
    let waiting = tokio::spawn(request().wait_time(60 * SECOND).acquire());
    settle().await;
    set(&nodes, FakeMode::Frozen);
    let refused = request().try_acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::TimedOut { .. }), "{refused}");
    sleep(SECOND).await;
    forget(&nodes);
    set(&nodes, UP);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
