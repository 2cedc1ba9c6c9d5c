//! Hand-overs in one process: which locks, for how long, and to which waiter. In paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use redlock_logs::Logs;
use tokio::time::{Instant, sleep, timeout};

use super::tests::{SECOND, acquisitions, one_node, settle, two_processes, wait};
use crate::clock::fake::{FakeClock, RuntimeClock};
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode};
use crate::{Dialect, LockError, LockManager, LockManagerBuilder, LockRequest, MemoryNode, scope};

/// Short enough that enough of the lease is left for a hand-over.
const BRIEFLY: Duration = Duration::from_millis(20);

fn request(locks: &LockManager) -> LockRequest {
    locks.lock("a").expire(30 * SECOND).wait_time(60 * SECOND)
}

/// The new holder gets the lease that it requested.
#[tokio::test(start_paused = true)]
async fn a_hand_over_extends_the_lease_in_the_background() {
    let (locks, node) = one_node();
    let first = request(&locks).expire(8 * SECOND).acquire().await.unwrap();
    let second = tokio::spawn(request(&locks).expire(10 * SECOND).acquire());
    sleep(BRIEFLY).await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    settle().await;
    assert!(second.remaining() > 9 * SECOND, "{:?}", second.remaining());
    assert_eq!(acquisitions(&node), 1, "the lock was not handed over");
}

/// The new holder keeps the rest of the old lease.
#[tokio::test(start_paused = true)]
async fn a_failed_extension_after_a_hand_over_is_logged() {
    let logs = Logs::collect();
    let (locks, node) = one_node();
    let first = request(&locks).expire(8 * SECOND).acquire().await.unwrap();
    let second = tokio::spawn(request(&locks).expire(10 * SECOND).acquire());
    sleep(BRIEFLY).await;
    node.set(FakeMode::Down);
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    settle().await;
    assert!(second.is_valid());
    assert_eq!(logs.count("WARN", "the lease of a lock that was handed over was not extended"), 1);
    assert_eq!(logs.count("WARN", " lock=a "), 1, "{:?}", logs.lines());
}

/// The next holder may be another handler. Fenced locks are taken after a confirmation.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_handed_over_has_the_name_of_its_new_holder() {
    for fenced in [false, true] {
        let (locks, node) = one_node();
        let request = |name| request(&locks).fenced(fenced).named(name);
        let first = request("order:{id}").acquire().await.unwrap();
        let of_first = first.handle();
        let mut second = Box::pin(request("refund").acquire());
        assert!(second.as_mut().now_or_never().is_none());
        first.release().await.unwrap();
        let second = second.await.unwrap();
        assert_eq!(acquisitions(&node), 1, "the lock was not handed over");
        assert_eq!([second.name(), of_first.name()], ["refund", "order:{id}"]);
    }
}

/// The kept lock has the same lease as an acquired one, although its guard is gone before the
/// extension begins.
#[tokio::test(start_paused = true)]
async fn a_kept_lock_that_was_handed_over_stays_for_the_requested_lease() {
    let (here, there, _) = two_processes(3);
    let first = request(&here).expire(8 * SECOND).acquire().await.unwrap();
    let mut second = Box::pin(request(&here).expire(10 * SECOND).acquire());
    assert!(second.as_mut().now_or_never().is_none());
    first.release().await.unwrap();
    second.now_or_never().expect("handed over").unwrap().keep_until_expiry();
    sleep(9 * SECOND).await;
    assert!(there.lock("a").try_acquire().await.unwrap_err().is_contended());
    sleep(SECOND + BRIEFLY).await;
    there.lock("a").try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_almost_over_is_not_handed_over() {
    const LEASE: Duration = Duration::from_millis(100);
    // The validity is 97 ms of the lease. A hand-over requires that 75 ms are left.
    for (held_for, acquired) in [(15, 1), (21, 1), (23, 2), (60, 2)] {
        let (locks, node) = one_node();
        let first = request(&locks).expire(LEASE).acquire().await.unwrap();
        let second = tokio::spawn(request(&locks).expire(LEASE).acquire());
        sleep(Duration::from_millis(held_for)).await;
        first.release().await.unwrap();
        drop(second.await.unwrap().unwrap());
        assert_eq!(acquisitions(&node), acquired, "after {held_for} ms");
    }
}

/// A node may have granted an extension that was not confirmed: to the previous holder, or to one
/// of its handles that is still waiting for the reply.
#[tokio::test(start_paused = true)]
async fn a_lease_that_may_be_longer_than_the_requested_one_is_not_handed_over() {
    for answered in [false, true] {
        let (locks, node) = one_node();
        let request = || request(&locks).expire(8 * SECOND);
        let first = request().acquire().await.unwrap();
        let second = tokio::spawn(request().acquire());
        settle().await;
        node.set(if answered { FakeMode::Up(BRIEFLY / 2) } else { FakeMode::AnswerLost });
        let view = first.handle();
        let extend = tokio::spawn(async move { view.extend(3600 * SECOND).await });
        settle().await;
        node.set(FakeMode::Up(Duration::ZERO));
        first.release().await.unwrap();
        second.await.unwrap().unwrap().keep_until_expiry();
        extend.await.unwrap().unwrap_err();
        sleep(9 * SECOND).await;
        assert!(!node.is_held(), "answered: {answered}: kept for more than the requested 8 s");
    }
}

/// Only the node knows how many holders of other processes there are.
#[tokio::test(start_paused = true)]
async fn a_permit_is_not_handed_over() {
    let node = Arc::new(MemoryNode::new());
    let manager = || {
        let nodes = vec![Arc::clone(&node) as Arc<dyn Node>];
        LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()))
    };
    let (here, there) = (manager(), manager());
    let permit = |locks, permits| request(locks).permits(permits).acquire();
    let first = permit(&here, 2).await.unwrap();
    let others = [permit(&here, 5).await.unwrap(), permit(&there, 5).await.unwrap()];
    let waiter = tokio::spawn(permit(&here, 2));
    sleep(BRIEFLY).await;
    first.release().await.unwrap();
    sleep(BRIEFLY).await;
    assert!(!waiter.is_finished(), "the waiter is a third holder of two permits");
    let [_other, last] = others;
    last.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
}

/// The clock of the server steps forward, and another process gets the lock: in the same dialect,
/// or in the other one, to which the first lock is a foreign key.
#[tokio::test(start_paused = true)]
async fn a_lock_that_the_nodes_deny_during_a_hand_over_has_no_new_holder() {
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let clock = FakeClock::default();
        let node = MemoryNode::with_clock(Arc::new(clock.clone()));
        let manager = || {
            let nodes = vec![Arc::new(node.clone()) as Arc<dyn Node>];
            LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()))
        };
        let (here, there) = (manager(), manager());
        let first = request(&here).fenced(true).acquire().await.unwrap();
        let second = tokio::spawn(request(&here).fenced(true).acquire());
        settle().await;
        let third = tokio::spawn(request(&here).acquire());
        settle().await;
        clock.advance(31 * SECOND);
        let other = there.lock("a").dialect(dialect).expire(30 * SECOND);
        let other = other.try_acquire().await.unwrap();
        first.release().await.unwrap();
        sleep(SECOND).await;
        assert!(other.is_valid());
        let second = second.now_or_never().map(Result::unwrap);
        assert!(!matches!(second, Some(Ok(_))), "{dialect:?}: two holders: {second:?}");
        let third = third.now_or_never().map(Result::unwrap);
        assert!(!matches!(third, Some(Ok(_))), "{dialect:?}: two holders: {third:?}");
    }
}

/// A streak of hand-overs must not keep other processes waiting for long, neither by many turns nor
/// by long ones.
#[tokio::test(start_paused = true)]
async fn a_streak_has_at_most_16_holders_and_ends_after_100_ms() {
    for (turns, held_for, acquired) in [(16, 0, 1), (17, 0, 2), (33, 0, 3), (2, 90, 1), (3, 90, 2)]
    {
        let (locks, node) = one_node();
        let turn = async || {
            let guard = wait(&locks, "a").await.unwrap();
            sleep(Duration::from_millis(held_for)).await;
            guard.release().await.unwrap();
        };
        join_all((0..turns).map(|_| turn())).await;
        assert_eq!(acquisitions(&node), acquired, "{turns} turns of {held_for} ms");
    }
}

/// Other processes may wait, so that this one pauses after each release, and hands over four times at most.
#[tokio::test(start_paused = true)]
async fn callers_of_other_processes_count_as_waiting_if_no_node_knows_their_number() {
    let (locks, node) = one_node();
    node.forget_subscribers();
    let turn = async || wait(&locks, "a").await.unwrap().release().await.unwrap();
    let begun = Instant::now();
    // The first streak does not know of others.
    join_all((0..16 + 3 * 4).map(|_| turn())).await;
    assert_eq!(acquisitions(&node), 4);
    assert!(begun.elapsed() >= Duration::from_millis(2), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_max_hold_of_the_new_holder_bounds_the_renewal() {
    let (locks, node) = one_node();
    let request = || request(&locks).expire(SECOND).renew(true).max_hold(5 * SECOND);
    let first = request().acquire().await.unwrap();
    let second = tokio::spawn(request().acquire());
    sleep(BRIEFLY).await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(acquisitions(&node), 1, "the lock was not handed over");
    timeout(7 * SECOND, second.lost()).await.unwrap();
}

/// The third waiter has watched the lease of the first holder, which handed the lock to the second.
#[tokio::test(start_paused = true)]
async fn the_third_waiter_does_not_wait_for_a_second_holder_that_overruns_its_lease() {
    let (locks, _, _) = two_processes(1);
    let request = || request(&locks).expire(SECOND);
    let first = request().acquire().await.unwrap();
    let (mut second, mut third) = (Box::pin(request().acquire()), Box::pin(request().acquire()));
    assert!(second.as_mut().now_or_never().is_none());
    assert!(third.as_mut().now_or_never().is_none());
    first.release().await.unwrap();
    let overrun = second.await.unwrap();
    let begun = Instant::now();
    assert!(third.await.unwrap().is_valid());
    assert!(begun.elapsed() <= Duration::from_millis(1010), "{:?}", begun.elapsed());
    drop(overrun);
}

/// When a scope is handed a lock, another waiter of this scope ends at once, and not after its wait
/// time: with an error, or, if it is reentrant, with the shared lock.
#[tokio::test(start_paused = true)]
async fn a_waiter_ends_at_once_when_its_own_scope_is_handed_the_lock() {
    for reentrant in [false, true] {
        let (locks, _, nodes) = two_processes(1);
        let first = wait(&locks, "a").await.unwrap();
        scope(async {
            let second = Box::pin(request(&locks).acquire());
            // `third` queues behind a stranger. Otherwise the hand-over would wake it as the first
            // waiter.
            let stranger = request(&locks);
            let stranger = tokio::spawn(async move {
                sleep(BRIEFLY / 4).await;
                stranger.acquire().await
            });
            let third = async {
                sleep(BRIEFLY / 2).await;
                let request = request(&locks);
                if reentrant { request.reentrant(true) } else { request }.acquire().await
            };
            let release = async {
                sleep(BRIEFLY).await;
                first.release().await.unwrap();
                Instant::now()
            };
            let third = async { (third.await, Instant::now()) };
            let (second, (third, ended), released) = tokio::join!(second, third, release);
            assert_eq!(ended, released);
            let second = second.unwrap();
            let again = locks.lock("a").try_acquire().await;
            assert!(matches!(again, Err(LockError::AlreadyHeld { .. })), "{again:?}");
            if reentrant {
                drop(second);
                assert!(third.unwrap().is_valid());
            } else {
                assert!(matches!(third, Err(LockError::AlreadyHeld { .. })), "{third:?}");
                drop(second);
            }
            drop(stranger.await.unwrap().unwrap());
        })
        .await;
        settle().await;
        assert!(nodes[0].is_empty() && locks.queues().is_empty());
    }
}

/// Two futures of one scope wait for the lock. One of them is handed the lock, and is dropped
/// before it takes it.
#[tokio::test(start_paused = true)]
async fn a_lock_handed_to_a_dropped_waiter_stays_in_its_scope() {
    for renewed in [false, true] {
        let (here, there, nodes) = two_processes(3);
        let request =
            || if renewed { here.lock("a").wait_time(60 * SECOND) } else { request(&here) };
        let first = request().acquire().await.unwrap();
        scope(async {
            let mut dropped = Box::pin(request().reentrant(true).acquire());
            let mut other = Box::pin(request().reentrant(true).acquire());
            assert!(dropped.as_mut().now_or_never().is_none());
            assert!(other.as_mut().now_or_never().is_none());
            let stranger = tokio::spawn(request().acquire());
            settle().await;
            first.release().await.unwrap();
            assert!(
                other.as_mut().now_or_never().is_none(),
                "the lock was handed to the first future"
            );
            drop(dropped);
            let other = other.await.unwrap();
            sleep(if renewed { 40 * SECOND } else { SECOND }).await;
            assert!(other.is_valid(), "renewed: {renewed}");
            assert!(there.lock("a").try_acquire().await.unwrap_err().is_contended());
            assert!(!stranger.is_finished());
            other.release().await.unwrap();
            stranger.await.unwrap().unwrap().release().await.unwrap();
        })
        .await;
        settle().await;
        assert!(nodes.iter().all(MemoryNode::is_empty));
        assert!(here.queues().is_empty());
    }
}

/// One of two futures of a scope is dropped at any point: before, during or after the hand-over of
/// the lock, or while its fencing token is confirmed.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_at_any_point_leaves_the_lock_to_its_scope() {
    for (fenced, polls) in
        [false, true].into_iter().flat_map(|fenced| (0..30).map(move |polls| (fenced, polls)))
    {
        let nodes: Vec<_> = (0..3).map(|number| FakeNode::start(&number.to_string())).collect();
        let manager = || {
            let nodes = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
            LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()))
        };
        let (here, there) = (manager(), manager());
        let request = || request(&here).reentrant(true);
        let first = request().fenced(true).acquire().await.unwrap();
        for node in &nodes {
            node.set(FakeMode::Up(Duration::from_millis(1)));
        }
        scope(async {
            let mut dropped = Box::pin(request().fenced(fenced).acquire());
            assert!(dropped.as_mut().now_or_never().is_none());
            let mut dropped = Some(dropped);
            let mut other = Box::pin(request().acquire());
            let (mut dropped_guard, mut other_guard, mut first) = (None, None, Some(first));
            for round in 0.. {
                if other_guard.is_none() {
                    other_guard = other.as_mut().now_or_never().map(Result::unwrap);
                }
                if round == polls {
                    drop((dropped.take(), dropped_guard.take()));
                }
                if let Some(Some(guard)) =
                    dropped.as_mut().map(|dropped| dropped.as_mut().now_or_never())
                {
                    (dropped_guard, dropped) = (Some(guard.unwrap()), None);
                }
                if round == 5 {
                    drop(first.take());
                }
                if round > polls && other_guard.is_some() {
                    break;
                }
                sleep(Duration::from_micros(300)).await;
            }
            let other_guard = other_guard.unwrap();
            sleep(SECOND).await;
            let case = format!("fenced: {fenced}, {polls} polls");
            assert!(other_guard.is_valid(), "{case}");
            let refused = there.lock("a").try_acquire().await.unwrap_err();
            assert!(refused.is_contended(), "{case}: {refused}");
            other_guard.release().await.unwrap();
        })
        .await;
        sleep(SECOND).await;
        assert!(nodes.iter().all(|node| !node.is_held()), "fenced: {fenced}, {polls} polls");
        assert!(here.queues().is_empty());
    }
}

/// Two branches of a `select!` in one scope wait for the same lock. The branch that loses is
/// dropped.
#[tokio::test(start_paused = true)]
async fn the_winner_of_a_select_is_the_only_holder() {
    let (here, there, _) = two_processes(1);
    let request = || request(&here).reentrant(true);
    let first = wait(&here, "a").await.unwrap();
    tokio::spawn(async move {
        sleep(2 * BRIEFLY).await;
        first.release().await.unwrap();
    });
    scope(async {
        let late = async {
            sleep(BRIEFLY).await;
            request().acquire().await
        };
        let guard = tokio::select! {
            biased;
            guard = late => guard.unwrap(),
            guard = request().acquire() => guard.unwrap(),
        };
        settle().await;
        assert!(guard.is_valid());
        assert!(there.lock("a").try_acquire().await.unwrap_err().is_contended());
    })
    .await;
}

/// The caller has stopped polling its future, so nobody works under the lock.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_handed_over_is_renewed_only_when_its_waiter_has_taken_it() {
    const LEASE: Duration = Duration::from_secs(3);
    let (locks, there, nodes) = two_processes(1);
    let request = || request(&locks).expire(LEASE).renew(true);
    let first = request().acquire().await.unwrap();
    let mut second = Box::pin(request().acquire());
    assert!(second.as_mut().now_or_never().is_none());
    first.release().await.unwrap();
    let left = nodes[0].time_to_live("a").expect("handed over");
    sleep(left).await;
    assert_eq!(nodes[0].time_to_live("a"), None);
    let other = there.lock("a").expire(LEASE).try_acquire().await.expect("nobody renews it");
    assert!(second.as_mut().now_or_never().is_none());
    other.release().await.unwrap();
    assert!(second.await.unwrap().is_valid());
}
