//! Readers of one process that share one lock of the nodes, in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::test_util::{TestLocks, TestNode};
use crate::validity;
use crate::{
    HoldError, Holder, LockError, LockGuard, LockManager, LockRequest, ReleaseError, scope,
};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_millis(20);

fn reader(locks: &LockManager, expire: Duration) -> LockRequest {
    locks.lock("a").shared(true).expire(expire)
}

async fn read(locks: &LockManager) -> LockGuard {
    reader(locks, LEASE).try_acquire().await.unwrap()
}

async fn another_process(nodes: &TestLocks) -> LockManager {
    nodes.builder().connect().await.unwrap()
}

async fn is_free(locks: &LockManager) -> bool {
    locks.lock("a").try_acquire().await.is_ok()
}

/// Returns the number of holders that the first node has.
fn entries(nodes: &TestLocks) -> usize {
    nodes.nodes()[0].len()
}

#[tokio::test(start_paused = true)]
async fn readers_share_one_lock_of_the_nodes_until_the_last_has_left() {
    for waits in [false, true] {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let nodes = TestLocks::new(3);
            let (locks, there) = (nodes.manager(), another_process(&nodes).await);
            let mut guards = Vec::new();
            for _ in 0..3 {
                let request = reader(&locks, LEASE);
                let guard =
                    if waits { request.acquire().await } else { request.try_acquire().await };
                guards.push(Some(guard.unwrap()));
            }
            let has_joined = |guard: &Option<LockGuard>| guard.as_ref().unwrap().has_joined();
            assert_eq!(guards.iter().map(has_joined).collect::<Vec<_>>(), [false, true, true]);
            let text = format!("{:?}", guards[1]);
            assert!(text.contains("has_joined: true"), "{text}");
            for (left, index) in order.into_iter().enumerate() {
                assert_eq!(entries(&nodes), 1, "{left} have left");
                assert!(!is_free(&there).await);
                assert!(guards.iter().flatten().all(|guard| guard.is_valid()));
                guards[index].take().unwrap().release().await.unwrap();
            }
            assert!(is_free(&there).await && nodes.nodes()[0].is_empty());
            assert!(locks.queues().is_empty());
        }
    }
}

/// Counted from the first byte of the acquisition. No join prolongs it.
#[tokio::test(start_paused = true)]
async fn the_window_is_over_20_ms_after_the_begin_of_the_acquisition() {
    let nodes = TestLocks::new(1);
    nodes.nodes()[0].delay(8 * MILLI);
    let locks = nodes.manager();
    let first = read(&locks).await;
    sleep(11 * MILLI).await;
    let joined = read(&locks).await;
    assert!(joined.has_joined() && entries(&nodes) == 1);
    sleep(MILLI).await;
    let late = read(&locks).await;
    assert!(!late.has_joined() && entries(&nodes) == 2);
    let again = read(&locks).await;
    assert!(again.has_joined() && entries(&nodes) == 2);
    drop((first, joined));
    sleep(MILLI).await;
    assert_eq!(entries(&nodes), 1);
    drop((late, again));
    sleep(MILLI).await;
    assert_eq!(entries(&nodes), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_an_extension_and_a_downgrade_open_no_window() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let renewed = reader(&locks, 300 * MILLI).renew(true).try_acquire().await.unwrap();
    while renewed.held().extensions() == 0 {
        sleep(MILLI).await;
    }
    assert!(!reader(&locks, 300 * MILLI).try_acquire().await.unwrap().has_joined());
    sleep(WINDOW).await;
    renewed.extend(LEASE).await.unwrap();
    assert!(!reader(&locks, 300 * MILLI).try_acquire().await.unwrap().has_joined());
    let guard = locks.lock("b").expire(LEASE).try_acquire().await.unwrap();
    guard.downgrade().await.unwrap();
    let reader = locks.lock("b").shared(true).expire(LEASE).try_acquire().await.unwrap();
    assert!(!reader.has_joined());
}

#[tokio::test(start_paused = true)]
async fn only_plain_readers_of_the_same_manager_join() {
    let nodes = TestLocks::new(1);
    let (locks, there) = (nodes.manager(), another_process(&nodes).await);
    let others: [fn(&LockManager) -> LockRequest; 6] = [
        |locks| reader(locks, LEASE + MILLI),
        |locks| reader(locks, 199 * MILLI),
        |locks| reader(locks, LEASE).min_hold(MILLI),
        |locks| reader(locks, LEASE).keep(true),
        |locks| reader(locks, LEASE).fair(true),
        |locks| locks.lock("b").shared(true).expire(LEASE),
    ];
    for (number, other) in others.into_iter().enumerate() {
        let first = read(&locks).await;
        assert!(!first.has_joined(), "{number}");
        let guard = other(&locks).try_acquire().await.unwrap();
        assert!(!guard.has_joined(), "{number}");
        // Nor is its lock joined, unless it is that of a plain reader with a longer lease.
        let next = reader(&locks, 150 * MILLI).try_acquire().await.unwrap();
        assert!(!next.has_joined(), "{number}");
        drop((first, guard, next));
        nodes.nodes()[0].forget();
        sleep(SECOND).await;
    }
    for other in &others[1..5] {
        let first = other(&locks).try_acquire().await.unwrap();
        assert!(!reader(&locks, SECOND).try_acquire().await.unwrap().has_joined());
        drop(first);
        nodes.nodes()[0].forget();
        sleep(SECOND).await;
    }
    let _here = read(&locks).await;
    assert!(!read(&there).await.has_joined());
    let permits = || locks.lock("permits").permits(2).expire(LEASE).try_acquire();
    let both = [permits().await.unwrap(), permits().await.unwrap()];
    assert!(!both[1].has_joined() && permits().await.is_err());
}

/// A guard that is kept, or has a minimum hold time by another guard of its scope, is joined by nobody.
#[tokio::test(start_paused = true)]
async fn a_lock_that_stays_on_the_nodes_is_not_joined() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let body = async {
        let first = read(&locks).await;
        let kept = reader(&locks, LEASE).min_hold(SECOND).try_acquire().await.unwrap();
        assert!(Arc::ptr_eq(first.held(), kept.held()));
        let stranger = reader(&locks, LEASE).try_acquire();
        let stranger = tokio::spawn(stranger).await.unwrap().unwrap();
        assert!(!stranger.has_joined());
    };
    scope(body).await;
}

/// A reader that is not renewed ends after its own lease, although another one renews the lock.
#[tokio::test(start_paused = true)]
async fn each_guard_has_its_own_end_while_another_one_renews_the_lock() {
    for first_is_renewed in [false, true] {
        let nodes = TestLocks::new(3);
        let (locks, there) = (nodes.manager(), another_process(&nodes).await);
        let request = |renewed| {
            let request = reader(&locks, if renewed { 3 * SECOND } else { SECOND });
            if renewed { request.renew(true) } else { request.expire(3 * SECOND) }
        };
        let first = request(first_is_renewed).try_acquire().await.unwrap();
        let second = request(!first_is_renewed).try_acquire().await.unwrap();
        assert!(second.has_joined());
        let (renewed, own) = if first_is_renewed { (first, second) } else { (second, first) };
        let begun = Instant::now();
        timeout(LEASE, own.lost()).await.expect("its own lease is over");
        let lived = begun.elapsed();
        assert!((2900 * MILLI..=3 * SECOND).contains(&lived), "{lived:?}");
        assert!(!own.is_valid() && own.remaining().is_zero() && renewed.is_valid());
        let error = own.extend(SECOND).await.unwrap_err();
        assert!(matches!(error, HoldError::Lost(_)), "{error:?}");
        sleep(10 * SECOND).await;
        assert!(!own.is_valid() && renewed.is_valid() && !is_free(&there).await);
        let error = own.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Lost(_)), "{error:?}");
        assert!(renewed.is_valid() && entries(&nodes) == 1);
        renewed.release().await.unwrap();
        assert!(is_free(&there).await);
    }
}

/// As if nobody had joined it.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_first_reader_counts_from_the_begin_of_its_acquisition() {
    let nodes = TestLocks::new(1);
    nodes.nodes()[0].delay(15 * MILLI);
    let locks = nodes.manager();
    let begun = Instant::now();
    let first = reader(&locks, 3 * SECOND).try_acquire().await.unwrap();
    let renewed = reader(&locks, 3 * SECOND).renew(true);
    // A lease that is set is renewed only if the request says so.
    let renewed = renewed.try_acquire().await.unwrap();
    assert!(!first.has_joined() && renewed.has_joined());
    timeout(LEASE, first.lost()).await.expect("its own lease is over");
    let lived = begun.elapsed();
    let validity = validity::remaining(3 * SECOND, Duration::ZERO);
    assert!(lived >= validity && lived <= validity + 2 * MILLI, "{lived:?} of {validity:?}");
    assert!(renewed.is_valid());
}

/// Otherwise a task that hangs would keep writers out for the longer lease of a reader that has left.
#[tokio::test(start_paused = true)]
async fn a_guard_whose_own_lease_is_over_keeps_the_lock_from_nobody() {
    let nodes = TestLocks::new(1);
    let (locks, there) = (nodes.manager(), another_process(&nodes).await);
    let long = read(&locks).await;
    let short = reader(&locks, SECOND).try_acquire().await.unwrap();
    long.release().await.unwrap();
    assert!(entries(&nodes) == 1 && short.remaining() <= SECOND);
    sleep(SECOND).await;
    assert!(!short.is_valid() && is_free(&there).await);
    let error = short.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error:?}");
    assert!(locks.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_extension_prolongs_its_own_guard() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let first = read(&locks).await;
    let short = reader(&locks, SECOND).try_acquire().await.unwrap();
    let other = reader(&locks, SECOND).try_acquire().await.unwrap();
    short.extend(5 * SECOND).await.unwrap();
    assert!(short.remaining() > 4 * SECOND && short.remaining() <= 5 * SECOND);
    assert!(other.remaining() <= SECOND);
    short.extend(2 * LEASE).await.unwrap();
    assert!(short.remaining() > LEASE);
    assert!(first.remaining() <= LEASE && other.remaining() <= SECOND);
    drop(first);
    sleep(LEASE).await;
    assert!(short.is_valid() && !other.is_valid());
}

/// The process was stopped while the nodes executed the extension. Another reader has the lock for longer.
#[tokio::test(start_paused = true)]
async fn an_extension_that_is_confirmed_after_the_own_end_of_a_joined_reader_is_lost() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let long = read(&locks).await;
    let short = reader(&locks, 5 * SECOND).try_acquire().await.unwrap();
    assert!(short.has_joined());
    nodes.nodes()[0].delay(10 * MILLI);
    let handle = short.handle();
    let extension = tokio::spawn(async move { handle.extend(LEASE).await });
    tokio::task::yield_now().await;
    advance(6 * SECOND).await;
    let extended = extension.await.unwrap();
    assert!(matches!(extended, Err(HoldError::Lost(_))), "{extended:?}");
    assert!(!short.is_valid() && long.is_valid());
    short.lost().now_or_never().expect("`lost` resolves at once");
}

#[tokio::test(start_paused = true)]
async fn the_longest_hold_counts_for_each_guard() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let renewed = || reader(&locks, SECOND).renew(true);
    let first = renewed().max_hold(4 * SECOND).try_acquire().await.unwrap();
    let second = renewed().try_acquire().await.unwrap();
    let third = renewed().max_hold(2 * SECOND).try_acquire().await.unwrap();
    let begun = Instant::now();
    for (guard, ends_after) in [(&third, 3 * SECOND), (&first, 5 * SECOND)] {
        timeout(LEASE, guard.lost()).await.expect("the longest hold is over");
        let lived = begun.elapsed();
        assert!(lived + SECOND > ends_after && lived <= ends_after, "{lived:?}");
    }
    sleep(10 * SECOND).await;
    assert!(second.is_valid() && !first.is_valid() && !third.is_valid());
}

/// One of the readers renews the lock for all of them, also after some have left. Others come to it while the nodes have not
/// answered yet.
#[tokio::test(start_paused = true)]
async fn one_lock_is_renewed_as_seldom_for_many_readers_as_for_one() {
    let nodes = TestLocks::new(3);
    nodes.nodes().iter().for_each(|node| node.delay(15 * MILLI));
    let (locks, there) = (nodes.manager(), another_process(&nodes).await);
    let request = || reader(&locks, 3 * SECOND).renew(true);
    let mut guards = Vec::new();
    for _ in 0..50 {
        guards.push(request().try_acquire().await.unwrap());
    }
    assert!(guards[49].has_joined());
    let extended = || locks.snapshot().counters.extended;
    while let Some(guard) = guards.pop() {
        let before = extended();
        sleep(10 * SECOND).await;
        let count = extended() - before;
        assert!((9..=14).contains(&count), "{count} renewals in 10 s, {} readers", guards.len());
        assert!(guard.is_valid() && !is_free(&there).await);
        guards.truncate(guards.len() / 2);
    }
    sleep(SECOND).await;
    assert!(is_free(&there).await);
}

/// The nodes do not answer for a while. Each reader learns of the loss in time, and few questions are sent.
#[tokio::test(start_paused = true)]
async fn all_guards_end_when_the_lock_cannot_be_renewed() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let request = || reader(&locks, 3 * SECOND).renew(true);
    let guards: Vec<_> = join_all((0..20).map(|_| request().try_acquire()))
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    sleep(3100 * MILLI).await;
    nodes.nodes()[0].fail();
    let begun = Instant::now();
    join_all(guards.iter().map(|guard| guard.lost())).await;
    assert!(begun.elapsed() <= 3 * SECOND);
    assert!(guards.iter().all(|guard| !guard.is_valid()));
    sleep(SECOND / 5).await;
    let counters = locks.snapshot().counters;
    assert_eq!(counters.lost, 20, "each loss is reported");
    assert!(counters.not_extended < 60, "{} questions", counters.not_extended);
}

/// Nothing is sent for it, so it does not wait for the nodes.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_guard_that_is_not_the_last_ends_at_once() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let (first, second) = (read(&locks).await, read(&locks).await);
    nodes.nodes()[0].freeze();
    first.release().now_or_never().expect("at once").unwrap();
    assert!(second.is_valid() && entries(&nodes) == 1);
    let last = second.release();
    tokio::pin!(last);
    assert!((&mut last).now_or_never().is_none(), "the last one waits for the nodes");
    nodes.nodes()[0].recover();
    last.await.unwrap();
    assert_eq!(entries(&nodes), 0);
}

#[tokio::test(start_paused = true)]
async fn a_loss_ends_all_guards() {
    let nodes = TestLocks::new(3);
    let locks = nodes.manager();
    let request = || reader(&locks, 3 * SECOND).renew(true);
    let (first, second) =
        (request().try_acquire().await.unwrap(), request().try_acquire().await.unwrap());
    let plain = reader(&locks, 3 * SECOND).try_acquire().await.unwrap();
    nodes.nodes().iter().for_each(TestNode::forget);
    timeout(3 * SECOND / 2, join_all([first.lost(), second.lost(), plain.lost()])).await.unwrap();
    assert_eq!(locks.snapshot().counters.lost, 3);
    for guard in [first, second, plain] {
        assert_eq!(guard.loss().cause(), crate::LossCause::NotOnNodes);
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Lost(_)), "{error:?}");
    }
    assert!(locks.queues().is_empty() && is_free(&locks).await);
}

#[tokio::test(start_paused = true)]
async fn a_broken_lock_ends_all_guards_and_its_status_has_their_number() {
    let nodes = TestLocks::new(3);
    let (locks, there) = (nodes.manager(), another_process(&nodes).await);
    let guards = [read(&locks).await, read(&locks).await, read(&locks).await];
    let other = read(&there).await;
    let status = locks.status("a").await.unwrap();
    let mut own: Vec<_> = status.holders().iter().map(Holder::local_guards).collect();
    own.sort_unstable();
    assert_eq!(own, [0, 3]);
    let holder = status.holders().iter().find(|holder| holder.is_own()).unwrap();
    locks.break_lock("a", holder).await.unwrap();
    assert!(guards.iter().all(|guard| !guard.is_valid()) && other.is_valid());
    assert!(guards[2].lost().now_or_never().is_some());
    assert_eq!(locks.snapshot().counters.lost, 3);
    assert!(!read(&locks).await.has_joined(), "a broken lock was joined");
}

#[tokio::test(start_paused = true)]
async fn a_writer_of_the_process_closes_the_window_at_once() {
    for waits in [false, true] {
        let nodes = TestLocks::new(1);
        let locks = nodes.manager();
        let first = read(&locks).await;
        let mut writer = Box::pin(locks.lock("a").wait_time(LEASE).acquire());
        let mut pair = Box::pin(locks.lock_all(["a", "b"]).wait_time(LEASE).acquire());
        if waits {
            assert!((&mut writer).now_or_never().is_none());
            let refused = reader(&locks, LEASE).try_acquire().await.unwrap_err();
            assert!(refused.is_contended(), "{refused:?}");
            assert!((&mut pair).now_or_never().is_none());
        } else {
            locks.lock("a").try_acquire().await.unwrap_err();
            let next = read(&locks).await;
            assert!(!next.has_joined() && read(&locks).await.has_joined());
            locks.lock_all(["a", "b"]).try_acquire().await.unwrap_err();
            assert!(!read(&locks).await.has_joined());
        }
        drop((first, writer, pair));
    }
    // A caller of several keys waits for the first busy one, and closes the windows of all.
    let locks = TestLocks::new(1).manager();
    let last = || locks.lock("b").shared(true).expire(LEASE).try_acquire();
    let _readers = (read(&locks).await, last().await.unwrap());
    let mut pair = Box::pin(locks.lock_all(["a", "b"]).wait_time(LEASE).acquire());
    assert!((&mut pair).now_or_never().is_none());
    assert!(!last().await.unwrap().has_joined());
}

/// The nodes have named the key, for which readers of both processes have locks. The window was opened meanwhile.
#[tokio::test(start_paused = true)]
async fn a_caller_of_several_keys_closes_the_window_of_the_key_for_which_it_was_refused() {
    let nodes = TestLocks::new(1);
    let (locks, there) = (nodes.manager(), another_process(&nodes).await);
    let last = |locks: &LockManager| locks.lock("b").shared(true).expire(LEASE);
    let held = last(&there).try_acquire().await.unwrap();
    nodes.nodes()[0].delay(5 * MILLI);
    let reads = tokio::spawn(last(&locks).try_acquire());
    sleep(MILLI).await;
    let pair = tokio::spawn(locks.lock_all(["a", "b"]).wait_time(LEASE).acquire());
    let reads = reads.await.unwrap().unwrap();
    assert!(last(&locks).acquire().now_or_never().expect("it joins").unwrap().has_joined());
    while locks.snapshot().waiting.is_empty() {
        sleep(MILLI / 4).await;
    }
    let next = last(&locks).acquire().now_or_never();
    assert!(next.is_none(), "{next:?}");
    held.release().await.unwrap();
    reads.release().await.unwrap();
    drop(pair.await.unwrap().unwrap());
}

/// The reader came before the writer, and the others come after it.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_while_a_writer_waits_is_not_joined() {
    let nodes = TestLocks::new(1);
    let (locks, there) = (nodes.manager(), another_process(&nodes).await);
    let holder = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let first = tokio::spawn(reader(&locks, LEASE).acquire());
    sleep(SECOND).await;
    let writer = tokio::spawn(locks.lock("a").expire(LEASE).acquire());
    sleep(SECOND).await;
    let later = tokio::spawn(reader(&locks, LEASE).acquire());
    sleep(SECOND).await;
    holder.release().await.unwrap();
    let first = first.await.unwrap().unwrap();
    let refused = reader(&locks, LEASE).try_acquire().await.unwrap_err();
    assert!(refused.is_contended() && !later.is_finished(), "{refused:?}");
    first.release().await.unwrap();
    drop(writer.await.unwrap().unwrap());
    drop(later.await.unwrap().unwrap());
}

/// The nodes refuse a reader because a writer of another process waits, so the window is not used up.
#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_because_it_was_refused_closes_the_window() {
    let nodes = TestLocks::new(1);
    let (locks, there) = (nodes.manager(), another_process(&nodes).await);
    let first = read(&locks).await;
    let writer = tokio::spawn(there.lock("a").expire(LEASE).acquire());
    sleep(MILLI).await;
    assert!(read(&locks).await.has_joined(), "the mark of a writer closes no window by itself");
    let longer = tokio::spawn(reader(&locks, 2 * LEASE).acquire());
    sleep(MILLI).await;
    let refused = reader(&locks, LEASE).try_acquire().await.unwrap_err();
    assert!(refused.is_contended() && !longer.is_finished(), "{refused:?}");
    first.release().await.unwrap();
    drop(writer.await.unwrap().unwrap());
    drop(longer.await.unwrap().unwrap());
}

/// The readers that come while one of them asks get the lock with it, in one round trip.
#[tokio::test(start_paused = true)]
async fn readers_wait_for_the_one_that_asks() {
    for waits in [false, true] {
        let nodes = TestLocks::new(1);
        nodes.nodes()[0].delay(10 * MILLI);
        let locks = nodes.manager();
        let begun = Instant::now();
        let guards = join_all((0..64).map(|_| async {
            let request = reader(&locks, LEASE);
            if waits { request.acquire().await } else { request.try_acquire().await }
        }));
        let guards: Vec<_> = guards.await.into_iter().map(Result::unwrap).collect();
        assert!(begun.elapsed() <= 11 * MILLI, "{:?}", begun.elapsed());
        assert_eq!(entries(&nodes), 1);
        assert_eq!(guards.iter().filter(|guard| guard.has_joined()).count(), 63);
        drop(guards);
        sleep(SECOND).await;
        assert!(entries(&nodes) == 0 && locks.queues().is_empty());
    }
}

/// The window is over before the nodes answer, or the reader that asks is not polled.
#[tokio::test(start_paused = true)]
async fn a_slow_reader_delays_the_others_by_the_window_at_most() {
    for is_polled in [true, false] {
        let nodes = TestLocks::new(1);
        nodes.nodes()[0].delay(if is_polled { 50 * MILLI } else { 5 * MILLI });
        let locks = nodes.manager();
        let mut first = Box::pin(reader(&locks, LEASE).acquire());
        assert!((&mut first).now_or_never().is_none());
        let begun = Instant::now();
        let others = join_all([
            reader(&locks, LEASE).acquire().boxed(),
            reader(&locks, LEASE).try_acquire().boxed(),
        ]);
        let others = if is_polled {
            let (first, others) = tokio::join!(first, others);
            assert!(first.is_ok());
            others
        } else {
            others.await
        };
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        let longest = if is_polled { 72 * MILLI } else { 27 * MILLI };
        assert!(begun.elapsed() <= longest, "{:?}", begun.elapsed());
    }
}

/// A lock with a shorter lease would be of no use to it.
#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_no_reader_that_asks_for_a_shorter_lease() {
    for waits in [false, true] {
        let nodes = TestLocks::new(1);
        nodes.nodes()[0].delay(8 * MILLI);
        let locks = nodes.manager();
        let acquire = |expire| {
            let request = reader(&locks, expire);
            async move { if waits { request.acquire().await } else { request.try_acquire().await } }
        };
        let begun = Instant::now();
        let after = async |pause: u64, expire| {
            sleep(Duration::from_millis(pause)).await;
            let guard = acquire(expire).await.unwrap();
            (guard.has_joined(), begun.elapsed(), guard)
        };
        let (_short, long, third) = tokio::join!(acquire(SECOND), after(3, LEASE), after(5, LEASE));
        assert!(!long.0 && long.1 <= 12 * MILLI, "{:?}", long.1);
        // The answer to the first one has ended its wait, and is of no use to it.
        assert!(third.1 <= 18 * MILLI, "{:?}", third.1);
    }
}

/// The window counts from the begin of the acquisition, and a reader waits once.
#[tokio::test(start_paused = true)]
async fn a_late_reader_waits_for_the_rest_of_the_window() {
    for waits in [false, true] {
        let nodes = TestLocks::new(1);
        nodes.nodes()[0].delay(50 * MILLI);
        let locks = nodes.manager();
        let begun = Instant::now();
        let after = async |pause: u64, expire| {
            sleep(Duration::from_millis(pause)).await;
            let request = reader(&locks, expire);
            let guard = if waits { request.acquire().await } else { request.try_acquire().await };
            (guard.unwrap(), begun.elapsed())
        };
        let (_first, late, _longer) =
            tokio::join!(after(0, LEASE), after(12, LEASE), after(16, 2 * LEASE));
        assert!(!late.0.has_joined() || late.1 < 67 * MILLI);
        assert!(late.1 <= 72 * MILLI, "{:?}", late.1);
    }
}

/// Each of them asks once, as if it were alone.
#[tokio::test(start_paused = true)]
async fn readers_ask_themselves_if_the_one_that_asks_is_refused() {
    let nodes = TestLocks::new(1);
    let (locks, there) = (nodes.manager(), another_process(&nodes).await);
    let writer = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    nodes.nodes()[0].delay(5 * MILLI);
    let begun = Instant::now();
    let refused = join_all((0..8).map(|_| reader(&locks, LEASE).try_acquire())).await;
    assert!(begun.elapsed() < WINDOW, "{:?}", begun.elapsed());
    for error in refused.into_iter().map(Result::unwrap_err) {
        assert!(
            matches!(&error, LockError::Contended { votes, .. } if !votes.is_empty()),
            "{error:?}"
        );
    }
    let waiters: Vec<_> = (0..8).map(|_| tokio::spawn(reader(&locks, LEASE).acquire())).collect();
    sleep(SECOND).await;
    writer.release().await.unwrap();
    let guards = join_all(waiters).await;
    assert!(guards.iter().all(|guard| guard.as_ref().unwrap().is_ok()) && entries(&nodes) == 1);
    drop(guards);
    nodes.nodes()[0].fail();
    let failed = join_all((0..8).map(|_| reader(&locks, LEASE).acquire())).await;
    assert!(failed.iter().all(|error| matches!(error, Err(LockError::Unavailable { .. }))));
}

/// Both have a place in the line, and the second one does not wait for the end of the window.
#[tokio::test(start_paused = true)]
async fn a_reader_asks_at_once_if_the_one_that_asks_is_dropped() {
    for waits in [false, true] {
        let nodes = TestLocks::new(1);
        nodes.nodes()[0].delay(5 * MILLI);
        let locks = nodes.manager();
        let request = || {
            let request = reader(&locks, LEASE);
            if waits { request.acquire().boxed() } else { request.try_acquire().boxed() }
        };
        let mut first = request();
        assert!((&mut first).now_or_never().is_none());
        let begun = Instant::now();
        let second = tokio::spawn(request());
        sleep(MILLI).await;
        drop(first);
        drop(second.await.unwrap().unwrap());
        assert!(begun.elapsed() < WINDOW / 2, "{:?}", begun.elapsed());
    }
}

/// The waiter that joins leaves the line, and the next one does not join.
#[tokio::test(start_paused = true)]
async fn the_waiter_behind_a_reader_that_joins_asks_the_nodes() {
    let nodes = TestLocks::new(1);
    let (locks, there) = (nodes.manager(), another_process(&nodes).await);
    let writer = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let mut first = Box::pin(reader(&locks, LEASE).acquire());
    assert!((&mut first).now_or_never().is_none());
    sleep(SECOND).await;
    assert!((&mut first).now_or_never().is_none(), "it was refused, and waits");
    let longer = tokio::spawn(reader(&locks, 2 * LEASE).acquire());
    sleep(SECOND).await;
    writer.release().await.unwrap();
    let own = read(&locks).await;
    let longer = timeout(SECOND, longer).await.expect("it asks the nodes").unwrap().unwrap();
    let first = first.await.unwrap();
    assert_eq!([&own, &first, &longer].map(|guard| guard.has_joined()), [false, true, false]);
}

/// The task of the reader hung. Its own end has come before it took the lock, which another reader still has, and which a node
/// that forgets it gets again.
#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_its_lock_too_late_takes_it_from_nobody() {
    for waits in [false, true] {
        let nodes = TestLocks::new(3);
        nodes.nodes().iter().for_each(|node| node.delay(5 * MILLI));
        let (locks, there) = (nodes.manager(), another_process(&nodes).await);
        let mut first = Box::pin(reader(&locks, LEASE).renew(true).acquire());
        assert!((&mut first).now_or_never().is_none());
        let request = reader(&locks, SECOND);
        let mut late =
            if waits { request.acquire().boxed() } else { request.try_acquire().boxed() };
        assert!((&mut late).now_or_never().is_none());
        let first = first.await.unwrap();
        sleep(2 * SECOND).await;
        let late = late.await.unwrap();
        assert!(late.is_valid() && !late.has_joined() && entries(&nodes) == 2);
        late.release().await.unwrap();
        sleep(MILLI).await;
        nodes.nodes()[0].forget();
        sleep(2 * LEASE).await;
        assert!(first.is_valid() && !is_free(&there).await);
        assert_eq!(entries(&nodes), 1, "the node has got the lock again");
        first.release().await.unwrap();
        assert!(is_free(&there).await && locks.queues().is_empty());
    }
}

/// Its lease is shorter by the window, and one round trip each would be wasted for that.
#[tokio::test(start_paused = true)]
async fn a_reader_that_joins_extends_no_lease() {
    let nodes = TestLocks::new(1);
    nodes.nodes()[0].delay(18 * MILLI);
    let locks = nodes.manager();
    let guards = join_all((0..8).map(|_| reader(&locks, 200 * MILLI).acquire())).await;
    assert_eq!(guards.iter().flatten().filter(|guard| guard.has_joined()).count(), 7);
    sleep(50 * MILLI).await;
    assert!(guards.iter().flatten().all(|guard| guard.is_valid()));
    assert_eq!(locks.snapshot().counters.extended, 0);
}

/// A reader has joined the lock while it waited, and has not been polled since then.
#[tokio::test(start_paused = true)]
async fn a_reader_that_is_dropped_before_it_takes_its_lock_leaves_nothing_behind() {
    for (waits, leaves_last) in [(false, false), (false, true), (true, false), (true, true)] {
        let nodes = TestLocks::new(1);
        nodes.nodes()[0].delay(5 * MILLI);
        let locks = nodes.manager();
        let mut first = Box::pin(reader(&locks, LEASE).acquire());
        assert!((&mut first).now_or_never().is_none());
        let request = reader(&locks, LEASE);
        let mut other =
            if waits { request.acquire().boxed() } else { request.try_acquire().boxed() };
        assert!((&mut other).now_or_never().is_none());
        let guard = first.await.unwrap();
        if leaves_last {
            guard.release().await.unwrap();
            assert_eq!(entries(&nodes), 1, "the lock of the other reader was released");
            drop(other);
        } else {
            drop(other);
            assert!(guard.is_valid() && entries(&nodes) == 1);
            guard.release().await.unwrap();
        }
        sleep(SECOND).await;
        assert!(entries(&nodes) == 0 && locks.queues().is_empty());
    }
}

/// Two requests of one scope share the guard's lock of the scope, and not that of a stranger.
#[tokio::test(start_paused = true)]
async fn a_scope_joins_its_own_lock() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let stranger = read(&locks).await;
    let body = async {
        let (one, two) = (read(&locks).await, read(&locks).await);
        assert!(one.has_joined() && Arc::ptr_eq(one.held(), two.held()));
        let refused = locks.lock("a").wait_time(LEASE).acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::AlreadyHeld { .. }), "{refused:?}");
        drop(one);
        assert!(two.is_valid());
        let held = locks.snapshot().held;
        assert_eq!(held.iter().map(|held| held.guards).collect::<Vec<_>>(), [1, 1]);
    };
    scope(body).await;
    assert!(stranger.is_valid() && entries(&nodes) == 1);
    drop(stranger);
    sleep(MILLI).await;
    assert!(entries(&nodes) == 0 && locks.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_all_guards_before_it_releases_their_lock() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let guards = [read(&locks).await, read(&locks).await];
    locks.shutdown().await;
    assert!(guards.iter().all(|guard| !guard.is_valid()) && entries(&nodes) == 0);
    assert!(matches!(reader(&locks, LEASE).try_acquire().await, Err(LockError::ShutDown)));
}

#[tokio::test(start_paused = true)]
async fn nobody_joins_a_lock_during_a_drain_which_waits_for_each_guard() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let (first, second) = (read(&locks).await, read(&locks).await);
    let mut drained = Box::pin(tokio::spawn(locks.drain().into_future()));
    let refused = tokio::spawn(reader(&locks, LEASE).try_acquire()).await.unwrap();
    assert!(matches!(refused, Err(LockError::Draining)), "{refused:?}");
    first.release().await.unwrap();
    sleep(SECOND).await;
    assert!((&mut drained).now_or_never().is_none(), "the drain ended before the last guard");
    second.release().await.unwrap();
    timeout(SECOND, drained).await.unwrap().unwrap();
}

/// The drain begins while one of them asks, and the others wait for its answer.
#[tokio::test(start_paused = true)]
async fn readers_that_wait_for_another_one_do_not_join_its_lock_during_a_drain() {
    for waits in [false, true] {
        let nodes = TestLocks::new(1);
        nodes.nodes()[0].delay(5 * MILLI);
        let locks = nodes.manager();
        let mut first = Box::pin(reader(&locks, LEASE).acquire());
        assert!((&mut first).now_or_never().is_none());
        let request = reader(&locks, LEASE);
        let mut other =
            if waits { request.acquire().boxed() } else { request.try_acquire().boxed() };
        assert!((&mut other).now_or_never().is_none());
        let drained = tokio::spawn(locks.drain().into_future());
        let first = first.await;
        let other = other.await;
        assert!(!other.as_ref().is_ok_and(|guard| guard.has_joined()), "{other:?}");
        drop((first, other));
        timeout(SECOND, drained).await.unwrap().unwrap();
    }
}

/// Its work needs further locks. The drain has counted the guards before.
#[tokio::test(start_paused = true)]
async fn a_holder_that_reads_during_a_drain_asks_the_nodes() {
    for waits in [false, true] {
        let nodes = TestLocks::new(1);
        let locks = nodes.manager();
        let body = async {
            let own = locks.lock("b").expire(LEASE).try_acquire().await.unwrap();
            let stranger = tokio::spawn(reader(&locks, LEASE).try_acquire());
            let stranger = stranger.await.unwrap().unwrap();
            let drained = tokio::spawn(locks.drain().into_future());
            tokio::task::yield_now().await;
            let request = reader(&locks, LEASE);
            let guard = if waits { request.acquire().await } else { request.try_acquire().await };
            assert!(!guard.unwrap().has_joined());
            drop((own, stranger));
            timeout(SECOND, drained).await.unwrap().unwrap();
        };
        scope(body).await;
    }
}

/// The scope has no lock any more. Other readers have the lock that it shared.
#[tokio::test(start_paused = true)]
async fn a_holder_whose_shared_guard_ends_during_a_drain_is_refused() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let stranger = tokio::spawn(reader(&locks, LEASE).try_acquire()).await.unwrap().unwrap();
    let body = async {
        let guard = read(&locks).await;
        assert!(guard.has_joined());
        let drained = tokio::spawn(locks.drain().into_future());
        tokio::task::yield_now().await;
        let request = locks.lock("b").prepare().unwrap();
        let mut refused = Box::pin(request.refused_by_drain());
        assert!((&mut refused).now_or_never().is_none());
        drop(guard);
        let refused = refused.now_or_never().expect("at once");
        assert!(matches!(refused, LockError::Draining), "{refused:?}");
        drop(stranger);
        timeout(SECOND, drained).await.unwrap().unwrap();
    };
    scope(body).await;
}

/// 64 readers that hold the lock for a moment, again and again.
#[tokio::test(start_paused = true)]
async fn readers_that_never_rest_ask_the_nodes_sixty_times_a_second_and_let_writers_in() {
    const HOLD: Duration = Duration::from_millis(3);
    for count in [1, 5] {
        let nodes = TestLocks::new(count);
        nodes.nodes().iter().for_each(|node| node.delay(MILLI));
        let (locks, there) = (nodes.manager(), another_process(&nodes).await);
        let (turns, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for number in 0..64 {
            let (locks, turns, asked) = (locks.clone(), Arc::clone(&turns), Arc::clone(&asked));
            tokio::spawn(async move {
                loop {
                    let request = reader(&locks, LEASE);
                    let waits = number % 2 == 0;
                    let guard =
                        if waits { request.acquire().await } else { request.try_acquire().await };
                    if let Ok(guard) = guard {
                        turns.fetch_add(1, Ordering::SeqCst);
                        asked.fetch_add(usize::from(!guard.has_joined()), Ordering::SeqCst);
                        sleep(HOLD).await;
                        guard.release().await.unwrap();
                    } else {
                        sleep(HOLD).await;
                    }
                }
            });
        }
        sleep(2 * SECOND).await;
        let (turns, asked) = (turns.load(Ordering::SeqCst), asked.load(Ordering::SeqCst));
        assert!(turns > 20_000 && asked <= 120, "{asked} acquisitions for {turns} turns");
        for _ in 0..10 {
            let begun = Instant::now();
            let writer = there.lock("a").wait_time(LEASE).acquire().await.unwrap();
            let waited = begun.elapsed();
            assert!(waited <= WINDOW + HOLD + 6 * MILLI, "{waited:?}");
            writer.release().await.unwrap();
            sleep(SECOND / 10).await;
        }
    }
}
