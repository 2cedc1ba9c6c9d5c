//! What is handed over in this process, for how long, and to whom, in paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::tests::{SECOND, acquisitions, one_node, settle, two_processes, wait};
use crate::clock::fake::{FakeClock, RuntimeClock};
use crate::node::Node;
use crate::node::fake::{FakeNode, Mode};
use crate::{
    Dialect, FencedGuard, LockError, LockManager, LockManagerBuilder, LockRequest, MemoryNode,
    scope,
};

/// Short enough that a holder of so long hands its lock over.
const BRIEFLY: Duration = Duration::from_millis(20);

fn request(locks: &LockManager) -> LockRequest {
    locks.lock("a").expire(30 * SECOND).wait_time(60 * SECOND)
}

/// The new holder gets as long a lease as it asked for.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_handed_over_is_extended_in_the_background() {
    let (locks, node) = one_node();
    let first = request(&locks).expire(8 * SECOND).acquire().await.unwrap();
    let second = tokio::spawn(request(&locks).expire(10 * SECOND).acquire());
    sleep(BRIEFLY).await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    settle().await;
    assert!(second.remaining() > 9 * SECOND, "{:?}", second.remaining());
    assert_eq!(acquisitions(&node), 1, "handed over");
}

/// As long as one that it acquires itself, although its guard goes before the extension has begun.
#[tokio::test(start_paused = true)]
async fn what_is_handed_over_and_kept_stays_as_long_as_was_asked_for() {
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
    // 97 ms of the lease are validity, and 75 have to be left.
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

/// A node may have granted an extension that was not confirmed: to the holder before, or to a view of its
/// that has not heard yet.
#[tokio::test(start_paused = true)]
async fn a_lease_that_may_have_been_extended_beyond_what_is_asked_for_is_not_handed_over() {
    for answered in [false, true] {
        let (locks, node) = one_node();
        let request = || request(&locks).expire(8 * SECOND);
        let first = request().acquire().await.unwrap();
        let second = tokio::spawn(request().acquire());
        settle().await;
        node.set(if answered { Mode::Up(BRIEFLY / 2) } else { Mode::AnswerLost });
        let view = first.handle();
        let extend = tokio::spawn(async move { view.extend(3600 * SECOND).await });
        settle().await;
        node.set(Mode::Up(Duration::ZERO));
        first.release().await.unwrap();
        second.await.unwrap().unwrap().keep_until_expiry();
        extend.await.unwrap().unwrap_err();
        sleep(9 * SECOND).await;
        assert!(!node.is_held(), "answered: {answered}: kept for more than the 8 s asked for");
    }
}

/// The server's clock is stepped forward, and another gets the lock: in the same dialect, or in one in
/// which its key is a foreign one.
#[tokio::test(start_paused = true)]
async fn a_lock_that_the_nodes_deny_at_the_hand_over_is_not_handed_on() {
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let clock = FakeClock::default();
        let node = MemoryNode::with_clock(Arc::new(clock.clone()));
        let manager = || {
            let nodes = vec![Arc::new(node.clone()) as Arc<dyn Node>];
            LockManagerBuilder::over(nodes, Arc::new(RuntimeClock::new()))
        };
        let (here, there) = (manager(), manager());
        let first = request(&here).fenced().acquire().await.unwrap();
        let second = tokio::spawn(request(&here).fenced().acquire());
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
        assert!(!matches!(second, Some(Ok(_))), "{dialect:?}: two at once: {second:?}");
        let third = third.now_or_never().map(Result::unwrap);
        assert!(!matches!(third, Some(Ok(_))), "{dialect:?}: two at once: {third:?}");
    }
}

/// Not longer than others may be kept waiting, be it by many turns or by long ones.
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

#[tokio::test(start_paused = true)]
async fn the_bound_of_the_renewal_is_the_new_holders() {
    let (locks, node) = one_node();
    let request = || request(&locks).expire(SECOND).renew(true).max_hold(5 * SECOND);
    let first = request().acquire().await.unwrap();
    let second = tokio::spawn(request().acquire());
    sleep(BRIEFLY).await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(acquisitions(&node), 1, "handed over");
    timeout(7 * SECOND, second.lost()).await.unwrap();
}

/// It has watched the holder before, who handed the lock to the second.
#[tokio::test(start_paused = true)]
async fn the_third_in_line_does_not_wait_for_a_second_that_overruns_its_lease() {
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

/// Who waits for what its own scope is handed is told at once, and not after its waiting time.
#[tokio::test(start_paused = true)]
async fn what_is_handed_to_a_scope_is_not_waited_for_in_it() {
    for reentrant in [false, true] {
        let (locks, _, nodes) = two_processes(1);
        let first = wait(&locks, "a").await.unwrap();
        scope(async {
            let second = Box::pin(request(&locks).acquire());
            // Behind a stranger, so that it is not woken as the first in line.
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
            let (second, (third, told), released) = tokio::join!(second, third, release);
            assert_eq!(told, released);
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

/// A lock is handed to one future of a scope, which is dropped before it has taken it, while another
/// one of the same scope waits.
#[tokio::test(start_paused = true)]
async fn who_is_handed_a_lock_and_goes_takes_it_from_nobody() {
    for renewed in [false, true] {
        let (here, there, nodes) = two_processes(3);
        let request =
            || if renewed { here.lock("a").wait_time(60 * SECOND) } else { request(&here) };
        let first = request().acquire().await.unwrap();
        scope(async {
            let mut goes = Box::pin(request().reentrant(true).acquire());
            let mut stays = Box::pin(request().reentrant(true).acquire());
            assert!(goes.as_mut().now_or_never().is_none());
            assert!(stays.as_mut().now_or_never().is_none());
            let stranger = tokio::spawn(request().acquire());
            settle().await;
            first.release().await.unwrap();
            assert!(stays.as_mut().now_or_never().is_none(), "nobody has taken it yet");
            drop(goes);
            let stays = stays.await.unwrap();
            sleep(if renewed { 40 * SECOND } else { SECOND }).await;
            assert!(stays.is_valid(), "renewed: {renewed}");
            assert!(there.lock("a").try_acquire().await.unwrap_err().is_contended());
            assert!(!stranger.is_finished());
            stays.release().await.unwrap();
            stranger.await.unwrap().unwrap().release().await.unwrap();
        })
        .await;
        settle().await;
        assert!(nodes.iter().all(MemoryNode::is_empty));
        assert!(here.queues().is_empty());
    }
}

/// As above, wherever it goes: before, while or after it is handed the lock, or as it confirms its number.
#[tokio::test(start_paused = true)]
async fn whoever_goes_of_a_scope_leaves_the_lock_to_the_others() {
    for (fenced, polls) in
        [false, true].into_iter().flat_map(|fenced| (0..30).map(move |polls| (fenced, polls)))
    {
        let nodes: Vec<_> = (0..3).map(|number| FakeNode::start(&number.to_string())).collect();
        let manager = || {
            let nodes = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
            LockManagerBuilder::over(nodes, Arc::new(RuntimeClock::new()))
        };
        let (here, there) = (manager(), manager());
        let request = || request(&here).reentrant(true);
        let first = request().fenced().acquire().await.unwrap();
        for node in &nodes {
            node.set(Mode::Up(Duration::from_millis(1)));
        }
        scope(async {
            let goes = async {
                if fenced {
                    request().fenced().acquire().await.map(FencedGuard::into_guard)
                } else {
                    request().acquire().await
                }
            };
            let mut goes = Box::pin(goes);
            assert!(goes.as_mut().now_or_never().is_none());
            let mut goes = Some(goes);
            let mut stays = Box::pin(request().acquire());
            let (mut gone, mut stayed, mut first) = (None, None, Some(first));
            for round in 0.. {
                if stayed.is_none() {
                    stayed = stays.as_mut().now_or_never().map(Result::unwrap);
                }
                if round == polls {
                    drop((goes.take(), gone.take()));
                }
                if let Some(Some(guard)) = goes.as_mut().map(|goes| goes.as_mut().now_or_never()) {
                    (gone, goes) = (Some(guard.unwrap()), None);
                }
                if round == 5 {
                    drop(first.take());
                }
                if round > polls && stayed.is_some() {
                    break;
                }
                sleep(Duration::from_micros(300)).await;
            }
            let stayed = stayed.unwrap();
            sleep(SECOND).await;
            let case = format!("fenced: {fenced}, {polls} polls");
            assert!(stayed.is_valid(), "{case}");
            let refused = there.lock("a").try_acquire().await.unwrap_err();
            assert!(refused.is_contended(), "{case}: {refused}");
            stayed.release().await.unwrap();
        })
        .await;
        sleep(SECOND).await;
        assert!(nodes.iter().all(|node| !node.is_held()), "fenced: {fenced}, {polls} polls");
        assert!(here.queues().is_empty());
    }
}

/// As above, as it is written.
#[tokio::test(start_paused = true)]
async fn of_two_that_are_selected_the_one_that_is_left_holds_the_lock_alone() {
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
