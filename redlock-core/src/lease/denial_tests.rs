//! Denials of the nodes that arrive after a hand-over in this process, in paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::sleep;

use super::Holding;
use super::tests::{SECOND, manager, set, settle};
use crate::ballot::Lease;
use crate::ballot::attempt::tests::attempt;
use crate::caller_id::CallerId;
use crate::clock::fake::RuntimeClock;
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode};
use crate::telemetry::Named;
use crate::{HoldError, LockManager, LockManagerBuilder, LockRequest, Votes};

/// Slow enough that a hand-over takes place between an operation and its reply.
const SLOW: FakeMode = FakeMode::Up(Duration::from_millis(10));

fn request(locks: &LockManager) -> LockRequest {
    locks.lock("a").expire(30 * SECOND).wait_time(60 * SECOND)
}

/// Removes the lock from the nodes, as a restart without their data does.
fn forget(nodes: &[Arc<FakeNode>]) {
    for node in nodes {
        node.forget();
    }
}

/// Returns a manager on the same nodes in another process.
fn another_over(nodes: &[Arc<FakeNode>]) -> LockManager {
    let nodes = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
    LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()))
}

/// The denial answers an extension of the previous holder, which holds nothing by then.
#[tokio::test(start_paused = true)]
async fn a_denial_for_the_previous_holder_ends_the_lock_of_the_current_holder() {
    for hand_overs in 0..3 {
        let (locks, nodes) = manager(3);
        let mut held = request(&locks).acquire().await.unwrap();
        forget(&nodes);
        set(&nodes, &[SLOW; 3]);
        let view = held.handle();
        let extend = tokio::spawn(async move { view.extend(30 * SECOND).await });
        settle().await;
        for _ in 0..hand_overs {
            let mut next = Box::pin(request(&locks).acquire());
            assert!(next.as_mut().now_or_never().is_none());
            held.release().await.unwrap();
            held = next.now_or_never().expect("handed over").unwrap();
        }
        assert!(held.is_valid());
        let (lost, logs) = (held.lost(), redlock_logs::Logs::collect());
        let denied = extend.await.unwrap();
        assert!(matches!(denied, Err(HoldError::Lost(_))), "{denied:?}");
        assert!(!held.is_valid(), "after {hand_overs} hand-overs");
        lost.now_or_never().expect("the holder is notified");
        let count = || logs.count("WARN", "a lock was lost");
        if hand_overs == 1 {
            sleep(31 * SECOND).await;
            assert_eq!(count(), 1, "the keeper looks when the lease would end");
        }
        drop(held);
        sleep(SECOND).await;
        assert_eq!(count(), 1, "after {hand_overs} hand-overs");
    }
}

/// A denied renewal by the keeper has the same effect as a denied extension of the holder itself.
#[tokio::test(start_paused = true)]
async fn a_denied_renewal_of_the_previous_holder_ends_the_lock_of_the_current_holder() {
    const LEASE: Duration = Duration::from_millis(240);
    let (locks, nodes) = manager(3);
    let request = || request(&locks).expire(LEASE).renew(true);
    let first = request().acquire().await.unwrap();
    let mut second = Box::pin(request().acquire());
    assert!(second.as_mut().now_or_never().is_none());
    // The renewal is due 72 to 80 ms from now. Thanks to this extension, enough of the lease is
    // left for a hand-over by then.
    sleep(Duration::from_millis(50)).await;
    first.extend(LEASE).await.unwrap();
    forget(&nodes);
    set(&nodes, &[FakeMode::Up(Duration::from_millis(30)); 3]);
    sleep(Duration::from_millis(31)).await;
    first.release().await.unwrap();
    let second = second.now_or_never().expect("handed over").unwrap();
    assert!(second.is_valid());
    // The second holder's own extension was sent only after the hand-over, so its reply comes
    // later.
    sleep(Duration::from_millis(30)).await;
    assert!(!second.is_valid());
}

/// The denial arrives before the new holder takes the lock. The lock is lost, and the waiter goes
/// on waiting.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_denied_before_its_new_holder_takes_it_is_not_taken() {
    let (locks, nodes) = manager(3);
    let first = request(&locks).acquire().await.unwrap();
    let mut second = Box::pin(request(&locks).acquire());
    assert!(second.as_mut().now_or_never().is_none());
    forget(&nodes);
    let other = another_over(&nodes).lock("a").expire(5 * SECOND).try_acquire().await.unwrap();
    set(&nodes, &[SLOW; 3]);
    let view = first.handle();
    let extend = tokio::spawn(async move { view.extend(30 * SECOND).await });
    settle().await;
    first.release().await.unwrap();
    extend.await.unwrap().unwrap_err();
    let lost = other.lost();
    let second = second.await.unwrap();
    assert!(lost.now_or_never().is_some(), "two holders");
    drop((other, second));
}

/// The lease of the second holder is extended by the hand-over itself. The second holder hands the
/// lock over before the nodes have denied that extension.
#[tokio::test(start_paused = true)]
async fn a_denial_after_a_second_hand_over_ends_the_lock_of_the_third_holder() {
    let (locks, nodes) = manager(3);
    let request = |expire| request(&locks).expire(expire);
    let first = request(8 * SECOND).acquire().await.unwrap();
    let mut second = Box::pin(request(10 * SECOND).acquire());
    assert!(second.as_mut().now_or_never().is_none());
    let mut third = Box::pin(request(10 * SECOND).acquire());
    assert!(third.as_mut().now_or_never().is_none());
    forget(&nodes);
    set(&nodes, &[SLOW; 3]);
    first.release().await.unwrap();
    let second = second.now_or_never().expect("handed over").unwrap();
    settle().await;
    second.release().await.unwrap();
    let third = third.now_or_never().expect("handed over").unwrap();
    let other = another_over(&nodes).lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    assert!(other.is_valid());
    assert!(!third.is_valid(), "two holders, although the nodes have denied the extension");
}

/// Another thread may receive the denial between the end of a hold and the hand-over.
#[test]
fn a_denied_lock_is_not_handed_over() {
    for denied in [false, true] {
        let attempt = attempt("a");
        let now = attempt.clock.now();
        *attempt.lease() = Lease::new(now, now, 30 * SECOND);
        let held = Holding::new(
            &attempt,
            CallerId::default(),
            &Named::default(),
            &Arc::default(),
            &Arc::default(),
        );
        held.end_by_holder(|| {});
        if denied {
            held.attempt().deny(&Votes::default());
        }
        assert_eq!(held.for_next_holder(CallerId::default(), &Named::default()).is_none(), denied);
    }
}

/// Work that is dropped or panics releases its lock in the background. A release that cannot know whether a quorum had the
/// lock reports nothing.
#[tokio::test(start_paused = true)]
async fn a_release_in_the_background_reports_a_lock_that_is_gone() {
    for (forgotten, delay, is_lost) in [(0, 0, false), (1, 0, false), (2, 0, true), (3, 10, true)] {
        let (locks, nodes) = manager(3);
        let guard = request(&locks).acquire().await.unwrap();
        forget(&nodes[..forgotten]);
        set(&nodes, &[FakeMode::Up(Duration::from_millis(delay)); 3]);
        let logs = redlock_logs::Logs::collect();
        drop(guard);
        sleep(SECOND).await;
        let count = logs.count("WARN", "found=\"release\"");
        assert_eq!(count, usize::from(is_lost), "{forgotten} nodes, {delay} ms");
    }
}

/// The server has removed the lock, and its repeated release finds none.
#[tokio::test(start_paused = true)]
async fn a_release_whose_reply_was_lost_reports_no_loss() {
    let (locks, nodes) = manager(1);
    let guard = request(&locks).acquire().await.unwrap();
    set(&nodes, &[FakeMode::AnswerLost]);
    let logs = redlock_logs::Logs::collect();
    drop(guard);
    settle().await;
    assert!(!nodes[0].is_held());
    let before = nodes[0].releases();
    set(&nodes, &[FakeMode::Up(Duration::ZERO)]);
    sleep(10 * SECOND).await;
    assert!(nodes[0].releases() > before, "the release is repeated");
    assert_eq!(logs.count("WARN", "a lock was lost"), 0, "{:?}", logs.lines());
}
