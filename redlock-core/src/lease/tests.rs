//! Holding, renewing, losing and releasing locks, in paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::{Holding, LeaseKeeper};
use crate::ballot::Lease;
use crate::ballot::attempt::tests::attempt;
use crate::caller_id::CallerId;
use crate::clock::fake::{FakeClock, RuntimeClock};
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode, Operation};
use crate::telemetry::Named;
use crate::{
    HoldError, LockManager, LockManagerBuilder, LockState, MemoryNode, ReleaseError, Votes,
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(super) const UP: FakeMode = FakeMode::Up(Duration::ZERO);

pub(crate) fn manager(nodes: usize) -> (LockManager, Vec<Arc<FakeNode>>) {
    let nodes: Vec<_> = (1..=nodes).map(|n| FakeNode::start(&format!("node-{n}"))).collect();
    let dynamic = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
    (LockManagerBuilder::with_nodes(dynamic, Arc::new(RuntimeClock::new())), nodes)
}

pub(super) fn set(nodes: &[Arc<FakeNode>], modes: &[FakeMode]) {
    nodes.iter().zip(modes).for_each(|(node, mode)| node.set(*mode));
}

/// Waits until all tasks wait for a timer, which takes a millisecond of paused time.
pub(super) async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

fn extensions(node: &FakeNode) -> usize {
    node.log().iter().filter(|operation| matches!(operation, Operation::Extend(..))).count()
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lock_outlives_its_lease_and_ends_with_its_guard() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("order:42").expire(3 * SECOND).renew(true).try_acquire().await.unwrap();
    sleep(60 * SECOND).await;
    assert!(guard.is_valid());
    assert!(nodes.iter().all(|node| node.is_held()));
    // One renewal for each third of the lease: 60 in 60 s, and up to a tenth more because of the
    // jitter.
    let renewals = extensions(&nodes[0]);
    assert!((60..=67).contains(&renewals), "{renewals}");

    guard.release().await.unwrap();
    sleep(60 * SECOND).await;
    assert_eq!(extensions(&nodes[0]), renewals, "renewed after the release");
    assert!(nodes.iter().all(|node| !node.is_held()));
}

#[tokio::test(start_paused = true)]
async fn the_default_lease_is_30_s_renewed_and_an_explicit_one_is_not() {
    let (locks, nodes) = manager(1);
    let default = locks.lock("a").try_acquire().await.unwrap();
    let Operation::Acquire(_, expire) = nodes[0].log()[0].clone() else { panic!() };
    assert_eq!(expire, 30 * SECOND);
    sleep(11 * SECOND).await;
    assert_eq!(extensions(&nodes[0]), 1);
    default.release().await.unwrap();

    let explicit = locks.lock("b").expire(5 * SECOND).try_acquire().await.unwrap();
    sleep(6 * SECOND).await;
    assert_eq!(extensions(&nodes[0]), 1);
    assert!(!explicit.is_valid());
}

/// Loss is never silent.
#[tokio::test(start_paused = true)]
async fn a_lock_that_runs_out_is_lost_at_the_end_of_its_validity() {
    let (locks, _nodes) = manager(3);
    let start = Instant::now();
    let guard = locks.lock("a").expire(5 * SECOND).try_acquire().await.unwrap();
    let (one, two) = (guard.lost(), guard.lost());
    tokio::join!(one, two);
    // The validity ends before the lease on the servers, by 1 % of the lease and 2 ms.
    let elapsed = start.elapsed();
    assert!((4948..=4950).contains(&elapsed.as_millis()), "{elapsed:?}");
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), Duration::ZERO);
    guard.lost().now_or_never().expect("a later call of `lost` resolves too");
    assert!(matches!(guard.extend(SECOND).await, Err(HoldError::Lost(_))));
}

/// A failed extension is not a release. Redisson only logs the failure; another library gives up
/// after one failed round.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_repeated_while_validity_is_left() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(3 * SECOND).renew(true).try_acquire().await.unwrap();
    set(&nodes, &[UP, FakeMode::Frozen, FakeMode::Frozen]);
    sleep(Duration::from_millis(2500)).await;
    assert!(guard.is_valid());
    set(&nodes, &[UP; 3]);
    sleep(SECOND).await;
    assert!(guard.is_valid());
    assert!(guard.remaining() > SECOND, "{:?}", guard.remaining());
}

/// The keeper's timer stays at the time of a lock that was released, so that the next lock need not wake the task.
#[tokio::test(start_paused = true)]
async fn the_loss_of_a_lock_is_reported_after_an_earlier_lock_was_released() {
    for (earlier, later) in [(10, 20), (20, 10)] {
        let (locks, _nodes) = manager(1);
        let first = locks.lock("a").expire(earlier * SECOND).try_acquire().await.unwrap();
        first.release().await.unwrap();
        let begun = Instant::now();
        let guard = locks.lock("b").expire(later * SECOND).try_acquire().await.unwrap();
        let abandoned = || guard.held().attempt().is_abandoned();
        while !abandoned() {
            assert!(begun.elapsed() <= later * SECOND, "the keeper has not reported the loss");
            sleep(SECOND / 100).await;
        }
        assert!(begun.elapsed() >= later * SECOND * 9 / 10, "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_cannot_be_renewed_in_time_is_lost() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(3 * SECOND).renew(true).try_acquire().await.unwrap();
    set(&nodes, &[UP, FakeMode::Down, FakeMode::Frozen]);
    let start = Instant::now();
    guard.lost().await;
    assert!(start.elapsed() < 3 * SECOND, "{:?}", start.elapsed());
    set(&nodes, &[UP; 3]);
    sleep(SECOND).await;
    assert!(!guard.is_valid(), "a lost lock stays lost");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_a_quorum_forgot_is_lost_at_the_next_renewal() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(30 * SECOND).renew(true).try_acquire().await.unwrap();
    nodes[..2].iter().for_each(|node| node.forget());
    let start = Instant::now();
    guard.lost().await;
    assert!(start.elapsed() <= 10 * SECOND, "{:?}", start.elapsed());
    drop(guard);
    locks.shutdown().await;
    assert!(!nodes[2].is_held(), "the lost lock is removed from the remaining node");
}

#[tokio::test(start_paused = true)]
async fn an_extension_lengthens_and_never_shortens() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(5 * SECOND).try_acquire().await.unwrap();
    guard.extend(20 * SECOND).await.unwrap();
    let remaining = guard.remaining();
    assert!(remaining > 19 * SECOND, "{remaining:?}");
    guard.extend(SECOND).await.unwrap();
    assert_eq!(guard.remaining(), remaining);
    sleep(15 * SECOND).await;
    assert!(guard.is_valid() && nodes[0].is_held());
    sleep(5 * SECOND).await;
    assert!(!guard.is_valid() && !nodes[0].is_held());
    assert!(matches!(guard.release().await, Err(ReleaseError::Lost(_))));
}

/// The holder may already know of the loss, so the lock stays lost.
#[tokio::test(start_paused = true)]
async fn an_extension_that_is_confirmed_too_late_does_not_restore_the_lock() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(3 * SECOND).try_acquire().await.unwrap();
    sleep(Duration::from_millis(2950)).await;
    // The validity ends after 2968 ms.
    set(&nodes, &[FakeMode::Up(Duration::from_millis(30)); 3]);
    let extended = guard.extend(5 * SECOND).await;
    assert!(matches!(extended, Err(HoldError::Lost(_))), "{extended:?}");
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_suspect_while_a_quorum_does_not_confirm_it() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(3 * SECOND).renew(true).try_acquire().await.unwrap();
    assert_eq!(guard.state(), LockState::Held);
    set(&nodes, &[UP, FakeMode::Frozen, FakeMode::Frozen]);
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(guard.state(), LockState::Suspect, "a renewal was not confirmed");
    set(&nodes, &[UP; 3]);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(guard.state(), LockState::Held);
    set(&nodes, &[UP, FakeMode::Down, FakeMode::Down]);
    assert_eq!(guard.state(), LockState::Suspect, "at once, before any renewal");
    guard.lost().await;
    assert_eq!(guard.state(), LockState::Lost);
    set(&nodes, &[UP; 3]);
    let handle = guard.handle();
    drop(guard);
    assert_eq!(handle.state(), LockState::Lost);
    let guard = locks.lock("b").expire(SECOND).try_acquire().await.unwrap();
    let handle = guard.handle();
    guard.release().await.unwrap();
    assert_eq!(handle.state(), LockState::Released);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_forgot_the_lock_gets_it_again_while_the_quorum_stands() {
    let (locks, nodes) = manager(3);
    let renewed = locks.lock("a").expire(3 * SECOND).renew(true).try_acquire().await.unwrap();
    nodes[2].forget();
    sleep(Duration::from_millis(1100)).await;
    assert!(nodes[2].is_held());
    nodes[0].forget();
    renewed.extend(SECOND).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    assert!(nodes[0].is_held());
    renewed.release().await.unwrap();
    sleep(Duration::from_millis(1)).await;
    assert!(nodes.iter().all(|node| !node.is_held()));
}

/// A node may deny an extension when more than a third of the lease is over. By then it is not
/// worth setting the lock again on this node.
#[tokio::test(start_paused = true)]
async fn a_node_that_denies_an_extension_late_does_not_get_the_lock_again() {
    for (late, again) in [(Duration::from_millis(900), true), (Duration::from_millis(1100), false)]
    {
        let (locks, nodes) = manager(3);
        let guard = locks.lock("a").expire(3 * SECOND).try_acquire().await.unwrap();
        nodes[2].forget();
        nodes[2].set(FakeMode::Frozen);
        guard.extend(3 * SECOND).await.unwrap();
        sleep(late).await;
        nodes[2].set(UP);
        sleep(Duration::from_millis(100)).await;
        assert_eq!(nodes[2].is_held(), again, "{late:?}");
        drop(guard);
    }
}

/// Single nodes get a lock again, but a lock that a quorum has forgotten is lost.
#[tokio::test(start_paused = true)]
async fn a_lock_that_a_quorum_forgot_is_not_set_again() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(3 * SECOND).renew(true).try_acquire().await.unwrap();
    nodes[..2].iter().for_each(|node| node.forget());
    guard.lost().await;
    sleep(SECOND).await;
    assert!(!nodes[0].is_held() && !nodes[1].is_held());
}

/// The release is called while the lock is being set again on a node.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_released_is_not_set_again() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    nodes[2].forget();
    nodes[2].set(FakeMode::Up(Duration::from_millis(5)));
    guard.extend(30 * SECOND).await.unwrap();
    // The node has denied the extension, and is setting the lock again.
    sleep(Duration::from_millis(7)).await;
    guard.release().await.unwrap();
    sleep(SECOND).await;
    assert!(nodes.iter().all(|node| !node.is_held()));
    let log = nodes[2].log();
    assert!(matches!(log.last(), Some(Operation::Release(_))), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_ends_at_max_hold() {
    let (locks, _nodes) = manager(3);
    let start = Instant::now();
    let request = locks.lock("a").expire(3 * SECOND).renew(true).max_hold(20 * SECOND);
    let guard = request.try_acquire().await.unwrap();
    sleep(19 * SECOND).await;
    assert!(guard.is_valid());
    guard.lost().await;
    let held = start.elapsed();
    assert!((20 * SECOND..=23 * SECOND).contains(&held), "{held:?}");
}

/// A process that was suspended for longer than its lease notices the loss by the clock, not by a
/// flag.
#[tokio::test]
async fn the_time_of_a_suspension_counts_against_the_lease() {
    let clock = FakeClock::default();
    let node = MemoryNode::new();
    let locks = LockManagerBuilder::with_nodes(vec![Arc::new(node)], Arc::new(clock.clone()));
    let guard = locks.lock("a").expire(5 * SECOND).try_acquire().await.unwrap();
    assert!(guard.is_valid());
    clock.advance(5 * SECOND);
    assert!(!guard.is_valid());
    guard.lost().now_or_never().expect("lost without waiting for a timer");
}

/// The timers of the runtime do not advance during a suspension.
#[tokio::test(start_paused = true)]
async fn lost_checks_the_clock_periodically() {
    let clock = FakeClock::default();
    let nodes = vec![Arc::new(MemoryNode::new()) as _];
    let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(clock.clone()));
    let guard = locks.lock("a").expire(60 * SECOND).try_acquire().await.unwrap();
    let mut lost = Box::pin(guard.lost());
    assert!(lost.as_mut().now_or_never().is_none());
    clock.advance(60 * SECOND);
    tokio::time::timeout(2 * SECOND, lost).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_released_is_not_lost() {
    let (locks, _nodes) = manager(1);
    let guard = locks.lock("a").expire(SECOND).try_acquire().await.unwrap();
    let (handle, lost) = (guard.handle(), guard.lost());
    guard.release().await.unwrap();
    assert!(!handle.is_valid());
    assert!(tokio::time::timeout(60 * SECOND, lost).await.is_err());
    assert!(matches!(handle.extend(SECOND).await, Err(HoldError::Lost(_))));
}

/// Dropping is always safe.
#[tokio::test(start_paused = true)]
async fn a_dropped_release_continues_in_the_background() {
    let (locks, nodes) = manager(3);
    set(&nodes, &[FakeMode::Up(Duration::from_millis(5)); 3]);
    let guard = locks.lock("a").try_acquire().await.unwrap();
    let mut release = Box::pin(guard.release());
    assert!(release.as_mut().now_or_never().is_none());
    drop(release);
    locks.shutdown().await;
    assert!(nodes.iter().all(|node| !node.is_held()));
}

/// The connection has broken, but the node is not known to be down yet.
#[tokio::test(start_paused = true)]
async fn a_release_that_fails_at_once_is_repeated() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").try_acquire().await.unwrap();
    sleep(Duration::from_millis(1)).await;
    set(&nodes, &[UP, FakeMode::Broken, FakeMode::Broken]);
    drop(guard);
    sleep(Duration::from_millis(1)).await;
    set(&nodes, &[UP; 3]);
    sleep(SECOND).await;
    assert!(nodes.iter().all(|node| !node.is_held()));
}

/// Dropping is always safe.
#[test]
fn a_guard_may_be_dropped_outside_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (locks, nodes) = runtime.block_on(async { manager(3) });
    let guard = runtime.block_on(locks.lock("a").try_acquire()).unwrap();
    std::thread::spawn(move || drop(guard)).join().expect("dropping does not panic");
    runtime.block_on(locks.shutdown());
    assert!(nodes.iter().all(|node| !node.is_held()));

    let node = MemoryNode::new();
    let locks = LockManagerBuilder::with_nodes(
        vec![Arc::new(node.clone())],
        Arc::new(crate::clock::SystemClock),
    );
    let guard = runtime.block_on(locks.lock("a").try_acquire()).unwrap();
    drop(runtime);
    drop(guard);
    assert!(node.is_empty(), "a node in memory needs no runtime");
}

/// A node that is down was not asked for the lock, so there is nothing to release.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_leaves_no_release_pending() {
    let (locks, nodes) = manager(3);
    set(&nodes, &[UP, UP, FakeMode::Down]);
    for _ in 0..10 {
        for node in &nodes {
            node.forget();
        }
        let guard = locks.lock("a").expire(600 * SECOND).try_acquire().await.unwrap();
        guard.release().await.unwrap();
        sleep(Duration::from_millis(1)).await;
    }
    let start = Instant::now();
    locks.shutdown().await;
    assert_eq!(start.elapsed(), Duration::ZERO, "releases are still pending");
}

#[tokio::test(start_paused = true)]
async fn the_renewals_of_many_locks_are_spread_over_time() {
    let (locks, nodes) = manager(1);
    let mut guards = Vec::new();
    for number in 0..200 {
        nodes[0].forget();
        guards.push(locks.lock(format!("lock:{number}")).try_acquire().await.unwrap());
    }
    let before = extensions(&nodes[0]);
    assert_eq!(before, 0);
    sleep(Duration::from_millis(9400)).await;
    let half = extensions(&nodes[0]);
    assert!((30..170).contains(&half), "{half} of 200 renewed after 9.4 s");
}

/// A failed release is repeated until the extended lease ends on the nodes, not only until the
/// first lease ends.
#[tokio::test(start_paused = true)]
async fn the_release_of_an_extended_lease_is_repeated() {
    for renewed in [true, false] {
        let (locks, nodes) = manager(1);
        let request = locks.lock("a").expire(3 * SECOND);
        let request = if renewed { request.renew(true) } else { request };
        let guard = request.try_acquire().await.unwrap();
        if renewed {
            sleep(10 * SECOND).await;
        } else {
            guard.extend(30 * SECOND).await.unwrap();
            sleep(4 * SECOND).await;
        }
        set(&nodes, &[FakeMode::Down]);
        drop(guard);
        sleep(Duration::from_millis(100)).await;
        set(&nodes, &[UP]);
        sleep(SECOND).await;
        assert!(!nodes[0].is_held(), "renewed: {renewed}");
    }
}

/// The extension reaches the node long after the holder has sent it, and the lease begins there.
#[tokio::test(start_paused = true)]
async fn the_release_is_repeated_until_the_lease_of_a_dropped_extension_is_over() {
    const LATE: Duration = Duration::from_millis(2800);
    let (locks, nodes) = manager(1);
    let guard = locks.lock("a").expire(3 * SECOND).try_acquire().await.unwrap();
    nodes[0].set_reports_silence(false);
    set(&nodes, &[FakeMode::Frozen]);
    tokio::select! {
        result = guard.extend(10 * SECOND) => panic!("{result:?}"),
        () = sleep(LATE) => set(&nodes, &[FakeMode::Unreachable]),
    }
    drop(guard);
    // Without the dropped extension, the lease would be over on the node by now.
    sleep(9 * SECOND).await;
    assert!(nodes[0].is_held());
    set(&nodes, &[UP]);
    sleep(SECOND * 3 / 4).await;
    assert!(!nodes[0].is_held());
}

/// Returns a keeper that has a lock, and the lock.
fn keeper_of_a_lock() -> (LeaseKeeper, Arc<Holding>) {
    let (keeper, attempt) = (LeaseKeeper::default(), attempt("a"));
    let now = attempt.clock.now();
    *attempt.lease() = Lease::new(now, now, 3 * SECOND);
    let held = Holding::new(
        &attempt,
        CallerId::default(),
        &Named::default(),
        &Arc::default(),
        &Arc::default(),
    );
    keeper.add(&held, None, Instant::now(), 3 * SECOND);
    (keeper, held)
}

#[test]
fn a_lock_that_ends_while_the_keeper_gets_it_is_not_kept() {
    let (keeper, held) = keeper_of_a_lock();
    assert!(!keeper.is_empty());
    keeper.remove(&held);
    held.end_by_holder(|| {});
    keeper.add(&held, None, Instant::now(), 3 * SECOND);
    assert!(keeper.is_empty());
}

#[test]
fn the_keeper_forgets_a_lock_that_the_nodes_have_denied() {
    let (keeper, held) = keeper_of_a_lock();
    keeper.lose_denied(&held, &Votes::default());
    assert!(keeper.is_empty() && !held.is_valid());
}

#[tokio::test(start_paused = true)]
async fn the_background_work_ends_with_the_manager_and_its_last_guard() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let locks = LockManager::in_memory();
    let guard = locks.lock("a").try_acquire().await.unwrap();
    drop(locks);
    settle().await;
    assert!(tasks() > 0, "the lease is not renewed");
    drop(guard);
    settle().await;
    assert_eq!(tasks(), 0);
}
