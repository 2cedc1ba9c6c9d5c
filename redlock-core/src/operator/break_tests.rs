//! Breaks of holders in every state, at every moment.

use std::future::{IntoFuture, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::options::OnLost;
use crate::test_util::{TestLocks, TestNode};
use crate::{BreakError, FencingToken, KeyState, LockGuard, LockManager, RunError, scope};

const LEASE: Duration = Duration::from_secs(30);
/// Much shorter than any lease.
const SOON: Duration = Duration::from_secs(120);

async fn process(test: &TestLocks, label: &str) -> LockManager {
    test.builder().owner_label(label).connect().await.unwrap()
}

async fn break_all(locks: &LockManager, key: &str) {
    for holder in locks.status(key).await.unwrap().holders() {
        locks.break_lock(key, holder).await.unwrap();
    }
}

async fn waiting(locks: &LockManager, count: usize) {
    while locks.status("a").await.unwrap().local_waiters() < count {
        tokio::task::yield_now().await;
    }
}

fn number(guard: &LockGuard) -> i64 {
    guard.fencing_token().map(FencingToken::number).unwrap()
}

/// Both a holder of this process and one of another are broken while callers of the operator's process wait.
#[tokio::test]
async fn each_waiter_gets_the_lock_after_a_break() {
    for (nodes, is_own) in [(1, true), (1, false), (3, true), (3, false)] {
        let test = TestLocks::new(nodes);
        let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
        let holder = if is_own { &ops } else { &shop };
        let held = holder.lock("a").expire(LEASE).renew(true).try_acquire().await.unwrap();
        let waiters: Vec<_> = (0..10)
            .map(|_| {
                let waits = ops.lock("a").expire(LEASE).wait_time(LEASE * 10);
                tokio::spawn(async move { waits.acquire().await.unwrap().release().await })
            })
            .collect();
        waiting(&ops, 10).await;
        break_all(&ops, "a").await;
        let begun = tokio::time::Instant::now();
        for waiter in waiters {
            waiter.await.unwrap().unwrap();
        }
        assert!(begun.elapsed() < SOON, "{nodes} nodes, own: {is_own}: {:?}", begun.elapsed());
        drop(held);
    }
}

#[tokio::test]
async fn a_break_of_a_lock_that_was_handed_over_ends_its_present_holder() {
    let test = TestLocks::new(3);
    let ops = process(&test, "ops").await;
    let first = ops.lock("a").expire(LEASE).fenced(true).try_acquire().await.unwrap();
    let waits = ops.lock("a").expire(LEASE).fenced(true);
    let second = tokio::spawn(waits.acquire());
    waiting(&ops, 1).await;
    let id = ops.status("a").await.unwrap().holders()[0].id();
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    let seen = ops.status("a").await.unwrap();
    assert_eq!(seen.holders()[0].id(), id, "the lock was not handed over");
    break_all(&ops, "a").await;
    assert!(!second.is_valid());
    let third = ops.lock("a").fenced(true).try_acquire().await.unwrap();
    assert!(number(&third) > number(&second));
}

#[tokio::test]
async fn a_break_of_a_joined_lock_ends_all_its_guards() {
    let test = TestLocks::new(3);
    let ops = process(&test, "ops").await;
    scope(async {
        let outer = ops.lock("a").expire(LEASE).try_acquire().await.unwrap();
        let inner = ops.lock("a").expire(LEASE).reentrant(true).try_acquire().await.unwrap();
        assert_eq!(ops.snapshot().held[0].guards, 2);
        break_all(&ops, "a").await;
        assert!(!outer.is_valid() && !inner.is_valid());
        assert!(ops.snapshot().held.is_empty());
    })
    .await;
    assert!(ops.lock("a").try_acquire().await.is_ok());
}

/// A lock that stays after its guard is not held any more, but it refuses others of its process without a question.
#[tokio::test]
async fn a_lock_that_is_kept_is_free_after_a_break() {
    for min_hold in [false, true] {
        for is_own in [true, false] {
            let test = TestLocks::new(3);
            let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
            let request = shop.lock("a").expire(LEASE);
            let request = if min_hold { request.min_hold(LEASE) } else { request.keep(true) };
            request.try_acquire().await.unwrap().release().await.unwrap();
            assert!(shop.lock("a").try_acquire().await.unwrap_err().is_contended());
            break_all(if is_own { &shop } else { &ops }, "a").await;
            let case = format!("min_hold: {min_hold}, own: {is_own}");
            assert!(test.nodes().iter().all(TestNode::is_empty), "{case}");
            let there = ops.lock("a").try_acquire().await.expect(&case);
            there.release().await.unwrap();
            if is_own {
                let here = shop.lock("a").expire(LEASE).try_acquire().await.expect(&case);
                assert!(here.is_valid(), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn a_break_stops_work_that_ends_with_its_lock() {
    for is_own in [true, false] {
        let test = TestLocks::new(3);
        let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
        let request = shop.lock("a").expire(LEASE).renew(true).on_lost(OnLost::Abort);
        let run = tokio::spawn(request.run(async |_| std::future::pending::<()>().await));
        let locks = if is_own { &shop } else { &ops };
        while locks.status("a").await.unwrap().state() != KeyState::Exclusive {
            tokio::task::yield_now().await;
        }
        break_all(locks, "a").await;
        let ended = tokio::time::timeout(LEASE / 2, run).await.unwrap().unwrap();
        assert!(matches!(ended, Err(RunError::Lost(_))), "{ended:?}");
    }
}

/// The former holder may be on some nodes after a break that was dropped. It never has a quorum while its key is free.
#[tokio::test]
async fn a_break_that_is_dropped_at_any_poll_can_be_repeated() {
    for polls in 1.. {
        let test = TestLocks::new(3);
        for node in test.nodes() {
            node.delay(Duration::from_millis(1));
        }
        let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
        let guard = shop.lock("a").expire(LEASE).renew(true).try_acquire().await.unwrap();
        let seen = ops.status("a").await.unwrap();
        let ended = {
            let mut future = pin!(ops.break_lock("a", &seen.holders()[0]).into_future());
            let mut left = polls;
            poll_fn(|cx| match future.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => {
                    left -= 1;
                    if left == 0 { Poll::Ready(None) } else { Poll::Pending }
                }
            })
            .await
        };
        let has_ended = ended.is_some();
        let again = ops.break_lock("a", &seen.holders()[0]).await;
        assert!(matches!(again, Ok(_) | Err(BreakError::NotHeld { .. })), "{polls}: {again:?}");
        assert!(test.nodes().iter().all(TestNode::is_empty), "{polls} polls");
        tokio::time::timeout(LEASE / 2, guard.lost()).await.unwrap();
        if has_ended {
            assert!(polls > 2);
            break;
        }
    }
}

#[tokio::test]
async fn two_operators_can_break_one_holder_at_once() {
    let test = TestLocks::new(5);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let guard = shop.lock("a").expire(LEASE).renew(true).try_acquire().await.unwrap();
    let seen = ops.status("a").await.unwrap();
    let holder = &seen.holders()[0];
    let (one, two) = tokio::join!(ops.break_lock("a", holder), shop.break_lock("a", holder));
    for result in [&one, &two] {
        assert!(matches!(result, Ok(_) | Err(BreakError::NotHeld { .. })), "{result:?}");
    }
    assert!(one.is_ok() || two.is_ok());
    assert!(ops.lock("a").try_acquire().await.is_ok());
    tokio::time::timeout(LEASE / 2, guard.lost()).await.unwrap();
}

/// Otherwise it would go on until its next renewal.
#[tokio::test]
async fn a_holder_of_this_process_is_lost_at_once_if_another_operator_was_faster() {
    for nodes in [1, 5] {
        let test = TestLocks::new(nodes);
        let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
        let guard = shop.lock("a").expire(LEASE).renew(true).try_acquire().await.unwrap();
        let seen = shop.status("a").await.unwrap();
        let holder = &seen.holders()[0];
        ops.break_lock("a", holder).await.unwrap();
        let next = ops.lock("a").expire(LEASE).try_acquire().await.unwrap();
        assert!(guard.is_valid());
        let late = shop.break_lock("a", holder).await;
        assert!(matches!(late, Err(BreakError::NotHeld { .. })), "{late:?}");
        assert!(!guard.is_valid() && next.is_valid());
        drop(guard);
        shop.shutdown().await;
        assert!(test.nodes().iter().all(|node| node.len() == 1));
    }
}

#[tokio::test]
async fn a_broken_holder_that_renews_has_no_quorum_afterwards() {
    const SHORT: Duration = Duration::from_millis(300);
    for round in 0..60_u64 {
        let test = TestLocks::new(5);
        let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
        let guard = shop.lock("a").expire(SHORT).renew(true).try_acquire().await.unwrap();
        for (index, node) in test.nodes().iter().enumerate() {
            node.delay(Duration::from_millis((round * 7 + index as u64 * 13) % 10));
        }
        let seen = ops.status("a").await.unwrap();
        // The renewals come about each 100 ms.
        tokio::time::sleep(Duration::from_millis(80 + round % 30)).await;
        let result = ops.break_lock("a", &seen.holders()[0]).await;
        assert!(matches!(result, Ok(_) | Err(BreakError::Unavailable { .. })), "{result:?}");
        if result.is_ok() {
            tokio::time::timeout(SHORT * 2, guard.lost()).await.expect("the holder goes on");
        }
    }
}

/// Nodes that have confirmed a renewal fail the operator. The renewal restores the lock on the nodes that lacked it, which gives
/// the holder a quorum again.
#[tokio::test]
async fn a_break_is_no_success_before_a_renewal_can_have_restored_the_lock() {
    let test = TestLocks::new(5);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let guard = shop.lock("a").expire(LEASE).renew(true).try_acquire().await.unwrap();
    let seen = ops.status("a").await.unwrap();
    let [first, second, _, others @ ..] = test.nodes() else { panic!("five nodes") };
    for node in others {
        node.forget();
        node.delay(Duration::from_millis(20));
    }
    guard.extend(LEASE).await.unwrap();
    // The renewal waits for its replies, which keep their delay.
    others.iter().for_each(TestNode::recover);
    first.fail();
    second.fail();
    ops.break_lock("a", &seen.holders()[0]).await.unwrap();
    first.recover();
    second.recover();
    tokio::time::timeout(LEASE / 2, guard.lost()).await.expect("the holder goes on");
}

#[tokio::test]
async fn status_and_break_work_during_a_drain_and_end_with_the_manager() {
    let test = TestLocks::new(3);
    let ops = process(&test, "ops").await;
    let guard = ops.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let _drained = ops.drain();
    let seen = ops.status("a").await.unwrap();
    let holder = &seen.holders()[0];
    ops.break_lock("a", holder).await.unwrap();
    assert!(!guard.is_valid());
    ops.shutdown().await;
    assert!(matches!(ops.break_lock("a", holder).await, Err(BreakError::ShutDown)));
    assert!(ops.snapshot().held.is_empty());
}
