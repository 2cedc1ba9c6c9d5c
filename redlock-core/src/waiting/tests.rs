//! Waiting for locks, wake-ups and hand-overs, in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};

use super::release_signal::ReleaseSignal;
use crate::clock::fake::RuntimeClock;
use crate::lock::{LockSpec, Mode as LockMode};
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode, Operation};
use crate::{Dialect, LockError, LockGuard, LockKey, LockManager, LockManagerBuilder, MemoryNode};

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Returns two managers on the same nodes, like two copies of a service, and the nodes.
pub(super) fn two_processes(nodes: usize) -> (LockManager, LockManager, Vec<MemoryNode>) {
    let clock = Arc::new(RuntimeClock::new());
    let nodes: Vec<_> =
        (0..nodes).map(|_| MemoryNode::with_clock(Arc::<RuntimeClock>::clone(&clock))).collect();
    let manager = || {
        let nodes = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Node>).collect();
        LockManagerBuilder::with_nodes(nodes, Arc::<RuntimeClock>::clone(&clock))
    };
    (manager(), manager(), nodes)
}

pub(super) fn one_node() -> (LockManager, Arc<FakeNode>) {
    let (locks, mut nodes) = nodes(1);
    (locks, nodes.remove(0))
}

/// Returns a manager on nodes that the test controls, and the nodes.
pub(super) fn nodes(count: usize) -> (LockManager, Vec<Arc<FakeNode>>) {
    let nodes: Vec<_> = (0..count).map(|number| FakeNode::start(&number.to_string())).collect();
    let shared = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
    (LockManagerBuilder::with_nodes(shared, Arc::new(RuntimeClock::new())), nodes)
}

pub(super) fn acquisitions(node: &FakeNode) -> usize {
    node.log().iter().filter(|operation| matches!(operation, Operation::Acquire(..))).count()
}

/// Waits until all tasks wait for a timer, which takes a millisecond of paused time.
pub(super) async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

pub(super) async fn wait(locks: &LockManager, key: &str) -> Result<LockGuard, LockError> {
    locks.lock(key).expire(30 * SECOND).wait_time(60 * SECOND).acquire().await
}

/// The release wakes the waiter in the same instant of paused time: the waiter was not woken by a
/// timer of its own.
#[tokio::test(start_paused = true)]
async fn a_release_in_another_process_wakes_the_waiter() {
    for nodes in [1, 2, 5] {
        let (here, there, _) = two_processes(nodes);
        let guard = there.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
        let waiter = tokio::spawn(async move { wait(&here, "a").await.map(|_| Instant::now()) });
        sleep(Duration::from_millis(100)).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let acquired = waiter.await.unwrap().unwrap();
        assert_eq!(acquired - released, Duration::ZERO, "{nodes} nodes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_in_the_dialect_of_redisson_wakes_the_waiter() {
    let (here, there, _) = two_processes(3);
    let request = |locks: &LockManager| locks.lock("a").dialect(Dialect::Redisson);
    let guard = request(&there).expire(30 * SECOND).try_acquire().await.unwrap();
    let waiter = request(&here).wait_time(60 * SECOND).acquire();
    let waiter = tokio::spawn(async move { waiter.await.map(|_| Instant::now()) });
    sleep(Duration::from_millis(100)).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap() - released, Duration::ZERO);
}

/// The two dialects store different types. After a hand-over, other processes would find the wrong
/// type at the key.
#[tokio::test(start_paused = true)]
async fn a_lock_is_not_handed_over_as_one_of_another_dialect() {
    let (locks, _, _) = two_processes(1);
    let plain = locks.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    let redisson = || locks.lock("a").dialect(Dialect::Redisson).wait_time(60 * SECOND);
    let foreign =
        redisson().acquire().now_or_never().expect("refused without waiting").unwrap_err();
    assert!(matches!(foreign, LockError::ForeignKey { .. }), "{foreign:?}");
    assert!(foreign.to_string().contains("dialect"), "{foreign}");
    let foreign = redisson().try_acquire().await.unwrap_err();
    assert!(matches!(foreign, LockError::ForeignKey { .. }), "{foreign:?}");
    plain.release().await.unwrap();
    drop(redisson().acquire().await.unwrap());
    assert!(locks.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_lock_of_a_crashed_holder_when_the_lease_is_over() {
    let (here, there, _) = two_processes(3);
    let start = Instant::now();
    std::mem::forget(there.lock("a").expire(5 * SECOND).try_acquire().await.unwrap());
    drop(wait(&here, "a").await.unwrap());
    let waited = start.elapsed();
    assert!((5000..=5005).contains(&waited.as_millis()), "{waited:?}");
}

/// A holder of another library publishes no release.
#[tokio::test(start_paused = true)]
async fn an_unpublished_release_is_noticed_by_slow_polling() {
    let (locks, node) = one_node();
    node.occupy(60 * SECOND);
    let waiter = tokio::spawn(async move { wait(&locks, "a").await.is_ok() });
    sleep(10 * SECOND).await;
    let polls = acquisitions(&node);
    assert!((20..=42).contains(&polls), "{polls} polls in 10 s");
    let start = Instant::now();
    node.forget();
    assert!(waiter.await.unwrap());
    assert!(start.elapsed() <= Duration::from_millis(501), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn only_the_first_waiter_asks_the_nodes() {
    let (locks, node) = one_node();
    node.occupy(60 * SECOND);
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move { wait(&locks, "a").await.map(drop) })
        })
        .collect();
    sleep(10 * SECOND).await;
    let polls = acquisitions(&node);
    assert!(polls <= 42, "{polls} polls of 100 waiters in 10 s");
    node.forget();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    // At most one acquisition for each streak of 16 hand-overs, and two more.
    assert!(acquisitions(&node) - polls <= 100 / 16 + 2, "{}", acquisitions(&node));
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_process_get_the_lock_in_order() {
    let (locks, _, _) = two_processes(3);
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let first = locks.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..50 {
        let (locks, order) = (locks.clone(), Arc::clone(&order));
        waiters.push(tokio::spawn(async move {
            let guard = wait(&locks, "a").await.unwrap();
            order.lock().push(number);
            sleep(Duration::from_millis(1)).await;
            guard.release().await.unwrap();
        }));
        settle().await;
    }
    first.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
    assert!(locks.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn hand_overs_save_commands_and_never_give_two_holders() {
    let (locks, node) = one_node();
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                for _ in 0..50 {
                    let guard = wait(&locks, "a").await.unwrap();
                    assert!(guard.is_valid());
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let commands = node.log().len();
    assert!(commands <= 64 * 50 / 2, "{commands} commands for {} turns", 64 * 50);
    assert!(!node.is_held());
    assert!(locks.queues().is_empty());
}

/// Other processes get their turns although this process always has a waiter.
#[tokio::test(start_paused = true)]
async fn a_streak_of_hand_overs_ends() {
    let (here, there, _) = two_processes(1);
    let hog = {
        let here = here.clone();
        tokio::spawn(async move {
            let tasks = (0..4).map(|_| {
                let here = here.clone();
                async move {
                    loop {
                        let guard = wait(&here, "a").await.unwrap();
                        sleep(Duration::from_millis(1)).await;
                        guard.release().await.unwrap();
                    }
                }
            });
            futures_util::future::join_all(tasks).await;
        })
    };
    sleep(Duration::from_millis(10)).await;
    let start = Instant::now();
    for _ in 0..20 {
        wait(&there, "a").await.unwrap().release().await.unwrap();
    }
    hog.abort();
    let mean = start.elapsed() / 20;
    assert!(mean <= Duration::from_millis(60), "{mean:?}");
}

/// If the new holder crashes, the lock must not block others for longer than the lease that the new
/// holder requested.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_longer_than_the_requested_one_is_not_handed_over() {
    let (locks, _, nodes) = two_processes(1);
    let first = locks.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    let next = locks.clone();
    let second = tokio::spawn(async move {
        next.lock("a").expire(SECOND).wait_time(60 * SECOND).acquire().await.unwrap()
    });
    settle().await;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    assert!(nodes[0].time_to_live("a").unwrap() <= SECOND);
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_loss_in_this_process_wakes_the_next_waiter() {
    let (locks, node) = one_node();
    let holder = locks.lock("a").expire(9 * SECOND).renew(true).try_acquire().await.unwrap();
    let waiter = locks.clone();
    let waiter = tokio::spawn(async move { wait(&waiter, "a").await.unwrap() });
    sleep(SECOND).await;
    node.forget();
    holder.lost().await;
    let lost = Instant::now();
    drop(waiter.await.unwrap());
    assert!(lost.elapsed() <= Duration::from_millis(5), "{:?}", lost.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_all_waits_and_releases_a_lock_that_was_handed_over() {
    let (locks, _, nodes) = two_processes(1);
    let guard = locks.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    let mut first = Box::pin(wait(&locks, "a"));
    let mut second = Box::pin(wait(&locks, "a"));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    guard.release().await.unwrap();
    locks.shutdown().await;
    assert!(
        nodes[0].is_empty(),
        "the shutdown releases a lock that its new holder has not taken yet"
    );
    for waiter in [first, second] {
        let ended = waiter.now_or_never().expect("at once").unwrap_err();
        assert!(matches!(ended, LockError::ShutDown), "{ended:?}");
    }
    assert!(nodes[0].is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_this_process_holds_is_refused_without_a_round_trip() {
    let (locks, node) = one_node();
    let guard = locks.lock("a").expire(10 * SECOND).try_acquire().await.unwrap();
    sleep(SECOND).await;
    let refused = locks.lock("a").try_acquire().now_or_never().expect("no round trip").unwrap_err();
    let LockError::Contended { remaining, votes, .. } = refused else { panic!("{refused:?}") };
    let remaining = remaining.unwrap();
    assert!((8 * SECOND..9 * SECOND).contains(&remaining), "{remaining:?}");
    assert!(votes.is_empty());
    assert_eq!(acquisitions(&node), 1);
    // After the lease the lock of this process does not count any more.
    sleep(10 * SECOND).await;
    drop(locks.lock("a").try_acquire().await.unwrap());
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn the_wait_time_bounds_the_wait() {
    let (here, there, _) = two_processes(3);
    let _remote = there.lock("a").expire(60 * SECOND).try_acquire().await.unwrap();
    let _local = here.lock("b").expire(60 * SECOND).try_acquire().await.unwrap();
    for key in ["a", "b"] {
        let start = Instant::now();
        let refused = here.lock(key).wait_time(2 * SECOND).acquire().await.unwrap_err();
        assert!(refused.is_contended(), "{refused:?}");
        let waited = start.elapsed();
        assert!((2000..=2002).contains(&waited.as_millis()), "{key}: {waited:?}");
    }
    assert!(here.queues().len() == 1, "only the queue of the held lock is left");
}

/// A holder that overruns its lease does not block its own process forever.
#[tokio::test(start_paused = true)]
async fn no_waiter_waits_for_a_local_holder_that_overruns_its_lease() {
    let (locks, _, nodes) = two_processes(1);
    let overrun = locks.lock("a").expire(5 * SECOND).try_acquire().await.unwrap();
    let start = Instant::now();
    let next = wait(&locks, "a").await.unwrap();
    assert!(start.elapsed() <= Duration::from_millis(5010), "{:?}", start.elapsed());
    drop(overrun);
    settle().await;
    assert!(next.is_valid() && nodes[0].time_to_live("a").is_some());
    assert!(locks.lock("a").try_acquire().await.unwrap_err().is_contended());
}

#[tokio::test(start_paused = true)]
async fn too_many_waiters_are_refused() {
    let node = MemoryNode::new();
    let locks = LockManager::builder().memory_node(&node).max_waiters(2).connect().await.unwrap();
    let _held = locks.lock("a").try_acquire().await.unwrap();
    let (mut one, mut two) = (Box::pin(wait(&locks, "a")), Box::pin(wait(&locks, "a")));
    assert!(one.as_mut().now_or_never().is_none());
    assert!(two.as_mut().now_or_never().is_none());
    let refused = wait(&locks, "a").await.unwrap_err();
    assert!(matches!(refused, LockError::TooManyWaiters { limit: 2, .. }), "{refused:?}");
    drop(two);
    assert!(
        wait(&locks, "a").now_or_never().is_none(),
        "a dropped waiter makes room for a new one"
    );
}

/// A waiter that is dropped, at any place in the queue, delays no other waiter and leaves nothing
/// behind.
#[tokio::test(start_paused = true)]
async fn waiters_may_be_dropped_at_any_poll() {
    for local in [true, false] {
        for leaver in 0..3 {
            for polls in 0..12 {
                let (here, there, nodes) = two_processes(3);
                let holder = if local { &here } else { &there };
                let guard = holder.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
                let mut waiters: Vec<_> = (0..3).map(|_| Box::pin(wait(&here, "a"))).collect();
                let mut guard = Some(guard);
                let mut done = 0;
                for round in 0..40 {
                    if round == polls && leaver < waiters.len() {
                        drop(waiters.remove(leaver));
                    }
                    if round == 5 {
                        drop(guard.take());
                    }
                    let mut index = 0;
                    while index < waiters.len() {
                        match waiters[index].as_mut().now_or_never() {
                            Some(acquired) => {
                                drop(acquired.unwrap());
                                drop(waiters.remove(index));
                                done += 1;
                            }
                            None => index += 1,
                        }
                    }
                    sleep(Duration::from_millis(20)).await;
                }
                let case = format!("local {local}, leaver {leaver}, polls {polls}");
                assert!(waiters.is_empty(), "{} still wait: {case}", waiters.len());
                assert!(done >= 2, "{done}: {case}");
                assert!(here.queues().is_empty(), "{case}");
                assert!(nodes.iter().all(MemoryNode::is_empty), "{case}");
                assert!(nodes.iter().all(|node| node.subscriptions() == 0), "{case}");
            }
        }
    }
}

/// The lock is handed over to a waiter that is dropped before it is polled.
#[tokio::test(start_paused = true)]
async fn a_lock_handed_to_a_dropped_waiter_goes_to_the_next_waiter_or_is_released() {
    for others in [0, 1] {
        let (locks, _, nodes) = two_processes(3);
        let guard = locks.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
        let mut gone = Box::pin(wait(&locks, "a"));
        assert!(gone.as_mut().now_or_never().is_none());
        let mut next = Box::pin(wait(&locks, "a"));
        if others == 1 {
            assert!(next.as_mut().now_or_never().is_none());
        }
        guard.release().await.unwrap();
        drop(gone);
        if others == 1 {
            drop(next.as_mut().now_or_never().expect("handed over again").unwrap());
        }
        settle().await;
        assert!(nodes.iter().all(MemoryNode::is_empty), "{others} others");
        drop(next);
        assert!(locks.queues().is_empty(), "{others} others");
    }
}

/// A holder without waiters needs no subscription.
#[tokio::test(start_paused = true)]
async fn subscriptions_end_with_the_last_waiter() {
    let (here, there, nodes) = two_processes(3);
    let guard = there.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    let waiter = tokio::spawn(async move { wait(&here, "a").await.unwrap() });
    settle().await;
    assert!(nodes.iter().all(|node| node.subscriptions() == 1));
    guard.release().await.unwrap();
    let acquired = waiter.await.unwrap();
    assert!(nodes.iter().all(|node| node.subscriptions() == 0));
    drop(acquired);
}

fn spec(key: &LockKey) -> LockSpec {
    LockSpec::new(key.clone(), LockMode::Exclusive, Dialect::Plain)
}

/// A release is also published when a caller gives back its part of a split vote, but on fewer
/// nodes than a quorum.
#[tokio::test(start_paused = true)]
async fn releases_on_fewer_nodes_than_a_quorum_wake_no_waiter() {
    let (here, there, nodes) = two_processes(3);
    let _guard = there.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    let key = LockKey::new("a").unwrap();
    let spec = spec(&key);
    let (signal, _) = ReleaseSignal::subscribe(&here.queues().ballot.nodes, &spec);
    for (published, expected) in [(1, 10), (2, 0), (3, 0)] {
        let before = signal.counts();
        nodes[..published].iter().for_each(|node| node.publish_release(&spec));
        let start = Instant::now();
        let _ = timeout(10 * SECOND, signal.fired(&before)).await;
        assert_eq!(start.elapsed(), expected * SECOND, "{published} of 3");
    }
}

/// Before a quorum has confirmed the subscription, the waiter could miss a release.
#[tokio::test(start_paused = true)]
async fn a_waiter_asks_again_when_a_quorum_has_confirmed_its_subscription() {
    const LATE: Duration = Duration::from_millis(20);
    let (quickly, late) = (FakeMode::Up(Duration::ZERO), FakeMode::Up(LATE));
    for (modes, ready_after) in [
        ([quickly, quickly, FakeMode::Frozen], Duration::ZERO),
        ([quickly, late, FakeMode::Frozen], LATE),
        ([quickly, FakeMode::Frozen, FakeMode::Frozen], SECOND),
    ] {
        let (locks, nodes) = nodes(3);
        for (node, mode) in nodes.iter().zip(modes) {
            node.set(mode);
        }
        let key = LockKey::new("a").unwrap();
        let spec = spec(&key);
        let (signal, ready) = ReleaseSignal::subscribe(&locks.queues().ballot.nodes, &spec);
        let begun = Instant::now();
        signal.take_effect(ready, SECOND).await;
        assert_eq!(begun.elapsed(), ready_after, "{modes:?}");
    }
}

/// One node replies that the lock is held. The reply is outdated when the second node replies.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_published_during_an_attempt_is_not_missed() {
    const LATE: Duration = Duration::from_millis(20);
    let (locks, nodes) = nodes(3);
    let [at_once, late, never] = &nodes[..] else { unreachable!() };
    never.set(FakeMode::Frozen);
    late.set(FakeMode::Up(LATE));
    for node in [at_once, late] {
        node.occupy(60 * SECOND);
    }
    let waiter = tokio::spawn(async move { wait(&locks, "a").await.map(|_| Instant::now()) });
    sleep(SECOND).await;
    let before = acquisitions(at_once);
    while acquisitions(at_once) == before {
        sleep(Duration::from_millis(1)).await;
    }
    at_once.forget();
    at_once.publish_release();
    let before = acquisitions(late);
    while acquisitions(late) == before {
        sleep(Duration::from_millis(1)).await;
    }
    late.forget();
    late.publish_release();
    let released = Instant::now();
    let acquired = waiter.await.unwrap().unwrap();
    assert!(acquired - released <= 2 * LATE, "{:?}", acquired - released);
}

#[tokio::test(start_paused = true)]
async fn many_contended_rounds_leave_nothing_behind() {
    let (here, there, nodes) = two_processes(3);
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let locks = if number % 2 == 0 { here.clone() } else { there.clone() };
            tokio::spawn(async move {
                for round in 0..50 {
                    let guard = wait(&locks, &format!("lock:{}", round % 5)).await.unwrap();
                    sleep(Duration::from_micros(300)).await;
                    drop(guard);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    settle().await;
    assert!(here.queues().is_empty() && there.queues().is_empty());
    assert!(nodes.iter().all(|node| node.is_empty() && node.subscriptions() == 0));
}

/// No work without the lock: a waiter that is delayed may be polled only after the lease of the
/// lock that it was handed.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_handed_over_is_not_taken_after_its_lease() {
    let (here, there, _) = two_processes(1);
    let request = || here.lock("a").expire(SECOND).wait_time(60 * SECOND);
    let first = request().acquire().await.unwrap();
    let waiter = request().acquire();
    tokio::pin!(waiter);
    assert!((&mut waiter).now_or_never().is_none());
    first.release().await.unwrap();
    sleep(2 * SECOND).await;
    let stranger = there.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    assert!((&mut waiter).now_or_never().is_none(), "the waiter waits again");
    stranger.release().await.unwrap();
    assert!(waiter.await.unwrap().is_valid());
}

/// A waiter that is handed a lost lock does not go back to the end of the queue.
#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_its_place_after_a_failed_hand_over() {
    let (here, _, _) = two_processes(1);
    let request = || here.lock("a").expire(SECOND).wait_time(60 * SECOND);
    let first = request().acquire().await.unwrap();
    let (one, two) = (request().acquire(), request().acquire());
    tokio::pin!(one, two);
    assert!((&mut one).now_or_never().is_none());
    assert!((&mut two).now_or_never().is_none());
    first.release().await.unwrap();
    sleep(2 * SECOND).await;
    let guard = (&mut one).await.unwrap();
    assert!((&mut two).now_or_never().is_none());
    guard.release().await.unwrap();
    two.await.unwrap().release().await.unwrap();
    assert!(here.queues().is_empty());
}

/// After a wake-up, another process has usually taken the lock for a short time. With several nodes, a refusal may be a
/// split vote, whose end is not published.
#[tokio::test(start_paused = true)]
async fn only_a_waiter_that_was_woken_by_one_node_skips_the_look_up_of_the_lease() {
    for count in [1, 2, 3] {
        let (locks, nodes) = nodes(count);
        for node in &nodes {
            node.occupy(60 * SECOND);
        }
        let waiter = tokio::spawn(async move { wait(&locks, "a").await });
        sleep(10 * SECOND).await;
        let before = acquisitions(&nodes[0]);
        assert_eq!(nodes[0].lookups(), before);
        for node in &nodes {
            node.publish_release();
        }
        settle().await;
        assert_eq!(acquisitions(&nodes[0]), before + 1);
        assert_eq!(nodes[0].lookups(), before + usize::from(count > 1), "{count} nodes");
        waiter.abort();
    }
}

/// The node has forgotten the first lock, on which its holder still relies.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_beside_a_valid_one_of_its_process_is_given_back() {
    for (keys, waits) in [(1, false), (1, true), (2, false), (2, true)] {
        let (locks, node) = one_node();
        node.set(FakeMode::Up(Duration::from_millis(20)));
        let request =
            |keys: &[&str]| locks.lock_all(keys).expire(30 * SECOND).min_hold(20 * SECOND);
        let first = tokio::spawn(request(&["b"]).try_acquire());
        let second = request(&["b", "a"][..keys]);
        let second = if waits { second.wait_forever() } else { second.wait_time(Duration::ZERO) };
        let second = tokio::spawn(second.acquire());
        let first = first.await.unwrap().unwrap();
        node.forget();
        sleep(10 * SECOND).await;
        assert!(first.is_valid() && !node.is_held());
        assert_eq!((acquisitions(&node), node.releases()), (2, 1));
        assert_eq!(second.is_finished(), !waits);
        drop(first);
        let second = timeout(SECOND, second).await.unwrap().unwrap();
        assert_eq!(second.is_ok(), waits, "{second:?}");
        assert!(second.as_ref().err().is_none_or(LockError::is_contended));
    }
}
