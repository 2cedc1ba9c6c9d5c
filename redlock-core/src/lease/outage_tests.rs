//! Renewals, extensions and releases while nodes are down or slow, in paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, sleep_until};

use super::tests::{SECOND, UP, manager, set, settle};
use crate::clock::fake::FakeClock;
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode, Operation};
use crate::{HoldError, LockManagerBuilder};

fn extensions(node: &FakeNode) -> usize {
    node.log().iter().filter(|operation| matches!(operation, Operation::Extend(..))).count()
}

/// Each lock has one renewal at a time. If each failed renewal started another one, a manager with
/// many locks would flood the remaining nodes.
#[tokio::test(start_paused = true)]
async fn renewals_do_not_multiply_while_a_quorum_is_down() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(60 * SECOND).renew(true).try_acquire().await.unwrap();
    set(&nodes, &[UP, FakeMode::Down, FakeMode::Down]);
    sleep(55 * SECOND).await;
    // The first renewal is due after 18 to 20 s, and is repeated once a second.
    let attempts = extensions(&nodes[0]);
    assert!((30..=45).contains(&attempts), "{attempts} extensions in an outage of 55 s");
    set(&nodes, &[UP; 3]);
    sleep(50 * SECOND).await;
    assert!(guard.is_valid());
    let renewals = extensions(&nodes[0]) - attempts;
    assert!(renewals <= 5, "{renewals} extensions in 50 s after the outage");
}

/// Two of three nodes restart without their data, one after the other. Each gets the lock again.
/// Later, these two are the quorum that numbers the next holder.
#[tokio::test(start_paused = true)]
async fn a_node_that_gets_a_fenced_lock_again_continues_from_its_number() {
    let (locks, nodes) = manager(3);
    for node in &nodes {
        node.set_counter(41);
    }
    let request = || locks.lock("a").expire(3 * SECOND).renew(true).fenced(true);
    let guard = request().try_acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    assert_eq!(first.number(), 42);
    for node in &nodes[..2] {
        node.forget();
        node.set_counter(0);
        sleep(2 * SECOND).await;
        assert!(node.is_held(), "set again after a renewal");
    }
    guard.release().await.unwrap();

    set(&nodes, &[UP, UP, FakeMode::Down]);
    let guard = request().try_acquire().await.unwrap();
    let second = guard.fencing_token().unwrap();
    assert!(second > first, "{second:?} after {first:?}");
}

/// During an outage of minutes the pauses between the attempts grow, but only up to a limit.
#[tokio::test(start_paused = true)]
async fn a_release_that_failed_for_minutes_is_repeated_within_seconds_after_the_outage() {
    let (locks, nodes) = manager(1);
    let guard = locks.lock("a").expire(1000 * SECOND).try_acquire().await.unwrap();
    set(&nodes, &[FakeMode::Broken]);
    drop(guard);
    sleep(300 * SECOND).await;
    set(&nodes, &[UP]);
    let returned = Instant::now();
    while nodes[0].is_held() {
        let waited = returned.elapsed();
        assert!(waited < 6 * SECOND, "not released after {waited:?}");
        sleep(SECOND / 10).await;
    }
}

/// A shutdown that gives up on a release leaves the lock to its lease. The process may go on, as in
/// a test with several managers, and no background task may repeat the release.
#[tokio::test(start_paused = true)]
async fn a_release_that_a_shutdown_abandoned_is_not_repeated() {
    let (locks, nodes) = manager(1);
    let guard = locks.lock("a").expire(600 * SECOND).try_acquire().await.unwrap();
    set(&nodes, &[FakeMode::Down]);
    drop(guard);
    locks.shutdown().await;
    set(&nodes, &[UP]);
    sleep(60 * SECOND).await;
    assert_eq!(nodes[0].releases(), 0);
    assert!(nodes[0].is_held());
}

/// On a slow node the lease begins late: when the node executes the acquisition, at the latest when
/// the ballot decides. The node holds the lock for that much longer, and a failed release is
/// repeated until then.
#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_until_the_lease_of_a_slow_node_has_run_out() {
    let millis = Duration::from_millis;
    let (locks, nodes) = manager(1);
    set(&nodes, &[FakeMode::Up(millis(40))]);
    let begun = Instant::now();
    let guard = locks.lock("a").expire(millis(100)).try_acquire().await.unwrap();
    assert_eq!(begun.elapsed(), millis(40));
    sleep(millis(50)).await;
    set(&nodes, &[FakeMode::Broken]);
    drop(guard);
    // The lease is over for the holder. On the node it lasts until 140 ms.
    sleep_until(begun + millis(101)).await;
    set(&nodes, &[UP]);
    assert!(nodes[0].is_held());
    sleep_until(begun + millis(135)).await;
    assert!(!nodes[0].is_held());
}

/// The machine is suspended while an extension is pending. No timer of this process has noticed
/// that the lease is over, and another process may hold the lock.
#[tokio::test(start_paused = true)]
async fn an_extension_that_is_confirmed_after_a_suspension_past_the_lease_is_lost() {
    let clock = FakeClock::default();
    let node = FakeNode::start("node");
    let nodes = vec![Arc::clone(&node) as Arc<dyn Node>];
    let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(clock.clone()));
    let guard = locks.lock("a").expire(5 * SECOND).try_acquire().await.unwrap();
    node.set(FakeMode::Up(Duration::from_millis(10)));
    let handle = guard.handle();
    let extension = tokio::spawn(async move { handle.extend(60 * SECOND).await });
    settle().await;
    assert_eq!(extensions(&node), 0);
    clock.advance(6 * SECOND);
    let extended = extension.await.unwrap();
    assert!(matches!(extended, Err(HoldError::Lost(_))), "{extended:?}");
    assert!(!guard.is_valid());
    guard.lost().now_or_never().expect("`lost` resolves at once");
}
