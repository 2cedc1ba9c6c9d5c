//! Locks that stay on the nodes after their guard has ended, in paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::tests::{SECOND, manager};
use crate::clock::fake::RuntimeClock;
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode, Operation};
use crate::{
    LockError, LockGuard, LockManager, LockManagerBuilder, LockRequest, LockState, MemoryNode,
    scope,
};

const LEASE: Duration = Duration::from_secs(30);
const MIN_HOLD: Duration = Duration::from_secs(20);
/// Short enough that enough of the lease is left for a hand-over.
const BRIEFLY: Duration = Duration::from_millis(20);

/// The ways to let a lock stay after its guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The option `min_hold`.
    MinHold,
    /// The option `keep`.
    Keep,
    /// The guard's method.
    KeepUntilExpiry,
}
use Way::{Keep, KeepUntilExpiry, MinHold};

impl Way {
    /// Returns a request for the lock.
    fn request(self, locks: &LockManager) -> LockRequest {
        self.add_to(locks.lock("a").expire(LEASE))
    }

    fn add_to(self, request: LockRequest) -> LockRequest {
        match self {
            MinHold => request.min_hold(MIN_HOLD),
            Keep => request.keep(true),
            KeepUntilExpiry => request,
        }
    }

    async fn end(self, guard: LockGuard, is_dropped: bool) {
        match self {
            KeepUntilExpiry => guard.keep_until_expiry(),
            MinHold | Keep if is_dropped => drop(guard),
            MinHold | Keep => guard.release().await.unwrap(),
        }
    }

    /// Returns how long the lock stays, counted from the acquisition.
    fn hold_time(self) -> Duration {
        if self == MinHold { MIN_HOLD } else { LEASE }
    }
}

/// Returns two managers on one node, like two copies of a service, and the node.
fn two_processes() -> (LockManager, LockManager, MemoryNode) {
    let clock = Arc::new(RuntimeClock::new());
    let node = MemoryNode::with_clock(Arc::<RuntimeClock>::clone(&clock));
    let manager = || {
        LockManagerBuilder::with_nodes(
            vec![Arc::new(node.clone())],
            Arc::<RuntimeClock>::clone(&clock),
        )
    };
    (manager(), manager(), node)
}

/// Like `lockAtLeastFor` of `ShedLock`. The lock is not handed over in its own process, either.
#[tokio::test(start_paused = true)]
async fn a_lock_stays_for_its_time_however_its_guard_ends() {
    for (way, is_dropped, is_here) in [
        (MinHold, false, true),
        (MinHold, true, false),
        (Keep, false, false),
        (Keep, true, true),
        (KeepUntilExpiry, false, true),
        (KeepUntilExpiry, false, false),
    ] {
        let case = format!("{way:?}, dropped: {is_dropped}, waiter in the same process: {is_here}");
        let (here, there, node) = two_processes();
        let begun = Instant::now();
        let guard = way.request(&here).try_acquire().await.unwrap();
        let waiter = if is_here { &here } else { &there }.lock("a").expire(LEASE);
        let waiter = tokio::spawn(waiter.wait_time(LEASE * 2).acquire());
        sleep(BRIEFLY).await;
        let handle = guard.handle();
        way.end(guard, is_dropped).await;
        assert_eq!(handle.state(), LockState::Released, "{case}");
        assert_eq!(node.time_to_live("a"), Some(way.hold_time().saturating_sub(BRIEFLY)), "{case}");
        let other = here.lock("a").try_acquire().await.unwrap_err();
        assert!(other.is_contended(), "{case}: {other}");
        let next = waiter.await.unwrap().unwrap();
        let free_after = begun.elapsed();
        assert!(
            (way.hold_time()..way.hold_time() + SECOND).contains(&free_after),
            "{case}: {free_after:?}"
        );
        next.release().await.unwrap();
        assert!(node.is_empty(), "{case}");
    }
}

/// The `min_hold` is over when the guard ends. With the other two ways, the lock still stays for
/// the rest of its last lease.
#[tokio::test(start_paused = true)]
async fn a_renewed_lock_stays_for_its_last_lease_or_until_its_min_hold_is_over() {
    for way in [MinHold, Keep, KeepUntilExpiry] {
        for is_dropped in [false, true] {
            let (locks, _, node) = two_processes();
            let guard = way.request(&locks).renew(true).try_acquire().await.unwrap();
            sleep(2 * LEASE).await;
            assert!(guard.is_valid());
            let left = node.time_to_live("a").unwrap();
            way.end(guard, is_dropped).await;
            if way != MinHold {
                assert_eq!(node.time_to_live("a"), Some(left), "{way:?}");
                sleep(left.saturating_sub(SECOND)).await;
                assert_eq!(node.time_to_live("a"), Some(SECOND), "{way:?}: renewed");
                sleep(SECOND).await;
            }
            assert!(node.is_empty(), "{way:?}");
        }
    }
}

/// A lock that is handed over has only a part of its lease left.
#[tokio::test(start_paused = true)]
async fn a_request_with_min_hold_or_keep_is_not_handed_a_lock() {
    for way in [MinHold, Keep] {
        let (locks, nodes) = manager(1);
        let first = locks.lock("a").expire(LEASE).try_acquire().await.unwrap();
        let second = tokio::spawn(way.request(&locks).wait_time(LEASE).acquire());
        sleep(BRIEFLY).await;
        first.release().await.unwrap();
        second.await.unwrap().unwrap().release().await.unwrap();
        let log = nodes[0].log();
        assert!(matches!(log[2], Operation::Acquire(_, LEASE)), "{way:?}: {log:?}");
    }
}

/// The second of three holders requests a longer lease. Its guard is dropped before the extension
/// is sent.
#[tokio::test(start_paused = true)]
async fn a_kept_lock_does_not_stay_longer_because_of_an_earlier_holder() {
    let (locks, _, node) = two_processes();
    let request = |seconds| locks.lock("a").expire(seconds * SECOND).wait_time(LEASE);
    let first = request(8).try_acquire().await.unwrap();
    let mut second = Box::pin(request(10).acquire());
    let mut third = Box::pin(request(8).acquire());
    assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
    drop(first);
    drop(second.now_or_never().expect("handed over").unwrap());
    third.now_or_never().expect("handed over").unwrap().keep_until_expiry();
    sleep(SECOND).await;
    assert_eq!(node.time_to_live("a"), Some(7 * SECOND));
}

/// The longest stay of all requests counts. A lease that is too short is extended.
#[tokio::test(start_paused = true)]
async fn a_shared_lock_stays_for_the_longest_time_of_its_requests() {
    type Add = fn(LockRequest) -> LockRequest;
    let (plain, keep): (Add, Add) = (|request| request, |request| request.keep(true));
    let ten: Add = |request| request.min_hold(10 * SECOND);
    let twenty: Add = |request| request.min_hold(20 * SECOND);
    for (lease, outer, inner, expected) in [
        (30, plain, twenty, 20),
        (30, ten, twenty, 20),
        (12, plain, twenty, 20),
        (12, ten, twenty, 20),
        (30, plain, keep, 30),
        (60, ten, keep, 59),
        (30, keep, twenty, 29),
        (12, keep, twenty, 30),
        (12, keep, plain, 11),
        (12, ten, plain, 9),
    ] {
        for inner_ends_first in [true, false] {
            let (locks, _, node) = two_processes();
            scope(async {
                let one = outer(locks.lock("a").expire(lease * SECOND));
                let one = one.try_acquire().await.unwrap();
                sleep(SECOND).await;
                let two = inner(locks.lock("a").expire(LEASE).reentrant(true));
                let two = two.try_acquire().await.unwrap();
                let (first, last) = if inner_ends_first { (two, one) } else { (one, two) };
                drop(first);
                assert!(last.is_valid());
                last.release().await.unwrap();
            })
            .await;
            let left = node.time_to_live("a");
            assert_eq!(left, Some(expected * SECOND), "{lease} s, inner first: {inner_ends_first}");
        }
    }
}

/// A refused request does not make the lock stay longer.
#[tokio::test(start_paused = true)]
async fn a_lock_that_cannot_be_extended_for_a_request_is_not_shared_with_it() {
    for way in [MinHold, Keep] {
        let (clock, fake) = (Arc::new(RuntimeClock::new()), FakeNode::start("node"));
        let memory = MemoryNode::with_clock(Arc::<RuntimeClock>::clone(&clock));
        let nodes = vec![Arc::new(memory.clone()) as Arc<dyn Node>, Arc::<FakeNode>::clone(&fake)];
        let locks = LockManagerBuilder::with_nodes(nodes, clock);
        scope(async {
            let one = || locks.lock("a").expire(10 * SECOND).try_acquire();
            let two = || way.request(&locks).reentrant(true).try_acquire();
            let held = one().await.unwrap();
            fake.set(FakeMode::Broken);
            let refused = two().await.unwrap_err();
            assert!(matches!(refused, LockError::Unavailable { .. }), "{way:?}: {refused:?}");
            assert!(held.is_valid());
            fake.set(FakeMode::Up(Duration::ZERO));
            held.release().await.unwrap();
            assert!(memory.is_empty(), "{way:?}");
            let held = one().await.unwrap();
            fake.occupy(60 * SECOND);
            // Nobody may do the work of this caller, so `skip` must not read it as done.
            let lost = two().await.unwrap_err();
            assert!(matches!(lost, LockError::Lost(_)), "{way:?}: {lost:?}");
            assert!(!held.is_valid(), "the nodes have denied the extension");
            drop(held);
            assert!(memory.is_empty(), "{way:?}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_stays_for_its_lease_costs_each_node_one_operation() {
    for way in [Keep, KeepUntilExpiry] {
        for is_dropped in [false, true] {
            let (locks, nodes) = manager(3);
            way.end(way.request(&locks).try_acquire().await.unwrap(), is_dropped).await;
            sleep(LEASE / 2).await;
            locks.shutdown().await;
            assert!(nodes.iter().all(|node| node.log().len() == 1), "{way:?}: {nodes:?}");
        }
    }
}

/// One of two guards of a scope lets the lock stay. While the other guard lives, the lock is held:
/// a node that restarts without its data gets the lock again. After the last guard, no node does.
#[tokio::test(start_paused = true)]
async fn a_kept_lock_is_set_again_on_a_node_only_while_it_is_held() {
    for way in [Keep, KeepUntilExpiry] {
        let (locks, nodes) = manager(3);
        scope(async {
            let request = || locks.lock("a").reentrant(true);
            let held = request().try_acquire().await.unwrap();
            way.end(way.add_to(request()).try_acquire().await.unwrap(), false).await;
            for node in &nodes {
                node.forget();
                sleep(60 * SECOND).await;
                assert!(node.is_held() && held.is_valid(), "{way:?}");
            }
            // The node replies to the extension after the last guard was dropped.
            nodes[2].forget();
            nodes[2].set(FakeMode::Up(Duration::from_millis(5)));
            held.extend(LEASE).await.unwrap();
            drop(held);
            nodes[0].forget();
            sleep(10 * SECOND).await;
            let held: Vec<_> = nodes.iter().map(|node| node.is_held()).collect();
            assert_eq!(held, [false, true, false], "{way:?}");
        })
        .await;
    }
}

/// The guard with `keep_until_expiry` may be gone while another guard of the scope still shares the
/// lock.
#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_release_a_lock_that_is_to_stay() {
    for way in [MinHold, Keep, KeepUntilExpiry] {
        let (locks, _, node) = two_processes();
        scope(async {
            let shared = way.request(&locks).try_acquire().await.unwrap();
            if way == KeepUntilExpiry {
                let kept = way.request(&locks).reentrant(true).try_acquire().await.unwrap();
                kept.keep_until_expiry();
            }
            sleep(2 * SECOND).await;
            locks.shutdown().await;
            assert!(!shared.is_valid(), "the shutdown has ended the hold");
            drop(shared);
            assert_eq!(
                node.time_to_live("a"),
                Some(way.hold_time().saturating_sub(2 * SECOND)),
                "{way:?}"
            );
        })
        .await;
    }
}

/// An abandoned attempt leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn an_acquisition_that_completes_during_a_shutdown_does_not_stay() {
    for way in [MinHold, Keep] {
        let memory = MemoryNode::with_clock(Arc::new(RuntimeClock::new()));
        let slow = FakeNode::start("slow");
        slow.set(FakeMode::Up(Duration::from_millis(20)));
        let nodes = vec![Arc::new(memory.clone()) as Arc<dyn Node>, slow];
        let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()));
        let (acquired, ()) = tokio::join!(way.request(&locks).try_acquire(), locks.shutdown());
        assert!(matches!(acquired, Err(LockError::ShutDown)), "{way:?}: {acquired:?}");
        assert!(memory.is_empty(), "{way:?}: {:?}", memory.time_to_live("a"));
    }
}
