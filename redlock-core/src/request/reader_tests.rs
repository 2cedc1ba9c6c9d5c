//! Readers of one process, in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::node::deferring::DeferringNode;
use crate::test_util::{TestClock, TestLocks};
use crate::{LockError, LockGuard, LockManager, LockRequest, ReleaseError};

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(20);
const LEASE: Duration = Duration::from_secs(60);

/// Two processes with the same nodes.
async fn processes(nodes: &TestLocks) -> [LockManager; 2] {
    [nodes.manager(), nodes.builder().connect().await.unwrap()]
}

fn reader(locks: &LockManager, expire: Duration) -> LockRequest {
    locks.lock("a").shared(true).expire(expire)
}

async fn read(locks: &LockManager, expire: Duration) -> LockGuard {
    reader(locks, expire).try_acquire().await.unwrap()
}

async fn write(locks: &LockManager) -> Result<LockGuard, LockError> {
    locks.lock("a").expire(LEASE).try_acquire().await
}

/// Adds a reader with a long lease, and releases its lock at once.
async fn a_longer_reader_comes_and_goes(locks: &LockManager) {
    read(locks, 20 * SECOND).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_reader_is_renewed_beside_a_longer_one() {
    let nodes = TestLocks::new(5);
    let [here, there] = processes(&nodes).await;
    let short = reader(&here, SECOND).renew(true).try_acquire().await.unwrap();
    let _long = read(&here, 20 * SECOND).await;
    a_longer_reader_comes_and_goes(&here).await;
    for forgotten in [[0, 1], [2, 3]] {
        for node in forgotten {
            nodes.nodes()[node].forget();
        }
        // The next renewal sets the lock on these nodes again.
        sleep(3 * SECOND).await;
    }
    assert!(short.is_valid());
    let refused = write(&there).await.unwrap_err();
    assert!(refused.is_contended(), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_loses_a_forgotten_lock_within_its_own_lease() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    let short = reader(&here, SECOND).renew(true).try_acquire().await.unwrap();
    a_longer_reader_comes_and_goes(&here).await;
    nodes.nodes()[0].forget();
    timeout(SECOND, short.lost()).await.expect("the next renewal is denied");
    drop(write(&there).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn each_reader_has_the_lease_that_it_asks_for() {
    for (first, second) in [(23, 30), (30, 23)] {
        let nodes = TestLocks::new(1);
        let [here, there] = processes(&nodes).await;
        let first = read(&here, SECOND * first / 10).await;
        let expire = SECOND * second / 10;
        let reader = read(&here, expire).await;
        assert!(reader.remaining() > expire * 9 / 10, "{:?}", reader.remaining());
        first.release().await.unwrap();
        sleep(expire * 9 / 10).await;
        assert!(reader.is_valid() && write(&there).await.is_err());
        sleep(expire / 10).await;
        assert!(!reader.is_valid());
        drop(write(&there).await.unwrap());
    }
}

/// A reader that crashes, or overruns its lease, has the same effect.
#[tokio::test(start_paused = true)]
async fn a_reader_keeps_writers_out_for_its_own_lease_only() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    let _overruns = read(&here, SECOND).await;
    a_longer_reader_comes_and_goes(&here).await;
    let writer = there.lock("a").wait_time(8 * SECOND).acquire();
    let begun = Instant::now();
    drop(writer.await.unwrap());
    assert!(begun.elapsed() <= SECOND + MOMENT, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn only_the_reader_that_asked_for_it_keeps_its_lock() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    for min_hold in [false, true] {
        let kept = reader(&here, SECOND);
        let kept = if min_hold { kept.min_hold(SECOND) } else { kept.keep(true) };
        let kept = kept.try_acquire().await.unwrap();
        let other = read(&here, 20 * SECOND).await;
        kept.release().await.unwrap();
        other.release().await.unwrap();
        let (writer, begun) = (there.lock("a").wait_time(6 * SECOND).acquire(), Instant::now());
        writer.await.unwrap().release().await.unwrap();
        let waited = begun.elapsed();
        assert!((SECOND * 9 / 10..=SECOND + MOMENT).contains(&waited), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_reader_that_was_lost_reports_it() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    let (short, long) = (read(&here, SECOND).await, read(&here, LEASE).await);
    sleep(2 * SECOND).await;
    assert!(!short.is_valid() && long.is_valid());
    let error = short.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error:?}");
    assert!(write(&there).await.is_err(), "the release took the lock of the other reader");
}

/// The first of them asks alone as long as it is refused. The others join its lock.
#[tokio::test(start_paused = true)]
async fn a_run_of_readers_costs_one_question() {
    const READERS: usize = 1000;
    let (mut node, mut sent) = DeferringNode::new();
    (node.capabilities.ordered, node.capabilities.shared) = (true, true);
    let store = node.store.clone();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = async move {
        while let Some(op) = sent.recv().await {
            count.fetch_add(1, Ordering::SeqCst);
            op.execute();
        }
    };
    tokio::spawn(server);
    let clock = TestClock::new();
    let here = LockManager::builder().test_clock(&clock).max_waiters(READERS).node(node);
    let here = here.connect().await.unwrap();
    let there = LockManager::builder().memory_node(&store).connect().await.unwrap();
    let writer = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let readers: Vec<_> =
        (0..READERS).map(|_| tokio::spawn(reader(&here, LEASE).wait_forever().acquire())).collect();
    sleep(10 * SECOND).await;
    let before = asked.swap(0, Ordering::SeqCst);
    // All of them ask once at first: the refusal of the first one may concern it alone.
    assert!((READERS..READERS + 60).contains(&before), "{before} questions in 10 s");
    writer.release().await.unwrap();
    let guards: Vec<LockGuard> =
        join_all(readers).await.into_iter().map(|reader| reader.unwrap().unwrap()).collect();
    let after = asked.swap(0, Ordering::SeqCst);
    assert!((1..5).contains(&after), "{after} questions for {READERS} locks");
    assert_eq!(store.len(), 1);
    drop(guards);
    sleep(MOMENT).await;
    assert!(store.is_empty() && here.queues().is_empty());
}

/// Without waiting for the poll of the first one, and without waiting for each other.
#[tokio::test(start_paused = true)]
async fn readers_that_wait_next_to_each_other_enter_in_two_round_trips() {
    let nodes = TestLocks::new(3);
    let [here, there] = processes(&nodes).await;
    let delay = Duration::from_millis(10);
    let writer = write(&there).await.unwrap();
    let readers: Vec<_> =
        (0..20).map(|_| tokio::spawn(reader(&here, LEASE).wait_forever().acquire())).collect();
    sleep(SECOND).await;
    nodes.nodes().iter().for_each(|node| node.delay(delay));
    writer.release().await.unwrap();
    let begun = Instant::now();
    let guards = join_all(readers).await;
    assert!(begun.elapsed() < 3 * delay, "{:?}", begun.elapsed());
    assert!(guards.iter().all(|guard| guard.as_ref().unwrap().is_ok()));
}

/// Otherwise four readers that take turns would keep a writer of another process out for ever.
#[tokio::test(start_paused = true)]
async fn readers_that_never_rest_let_a_writer_of_another_process_in() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    for number in 0..4 {
        let here = here.clone();
        tokio::spawn(async move {
            sleep(number * MOMENT / 4).await;
            loop {
                let guard = reader(&here, LEASE).wait_forever().acquire().await.unwrap();
                sleep(MOMENT).await;
                guard.release().await.unwrap();
            }
        });
    }
    sleep(5 * MOMENT).await;
    let begun = Instant::now();
    drop(there.lock("a").wait_forever().acquire().await.unwrap());
    assert!(begun.elapsed() < SECOND / 10, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn one_attempt_to_read_does_not_overtake_a_writer_that_waits_in_the_same_process() {
    let nodes = TestLocks::new(1);
    let [here, _] = processes(&nodes).await;
    let holder = read(&here, LEASE).await;
    // The writer has not left its mark on the node yet.
    let mut writer = Box::pin(here.lock("a").wait_forever().acquire());
    nodes.nodes()[0].freeze();
    assert!((&mut writer).now_or_never().is_none());
    let refused = reader(&here, LEASE).try_acquire().now_or_never().expect("no question");
    assert!(matches!(refused, Err(LockError::Contended { remaining: Some(_), .. })), "{refused:?}");
    nodes.nodes()[0].recover();
    holder.release().await.unwrap();
    drop(writer.await.unwrap());
}

/// It has joined the lock already, or waits for the answer to the first one.
#[tokio::test(start_paused = true)]
async fn a_called_reader_that_is_dropped_leaves_no_lock_behind() {
    for first_ends_first in [false, true] {
        let nodes = TestLocks::new(1);
        let [locks, _] = processes(&nodes).await;
        nodes.nodes()[0].delay(Duration::from_millis(10));
        let mut first = Box::pin(reader(&locks, LEASE).wait_forever().acquire());
        let mut called = Box::pin(reader(&locks, LEASE).wait_forever().acquire());
        assert!((&mut first).now_or_never().is_none() && (&mut called).now_or_never().is_none());
        assert_eq!(nodes.nodes()[0].len(), 1, "the second reader asks beside the first one");
        let guard = first.await.unwrap();
        if first_ends_first {
            guard.release().await.unwrap();
            drop(called);
        } else {
            drop(called);
            guard.release().await.unwrap();
        }
        sleep(MOMENT).await;
        assert!(nodes.nodes()[0].is_empty() && locks.queues().is_empty());
    }
}

/// A reader returns to its place when a writer comes in between, and is woken when it is its turn.
#[tokio::test(start_paused = true)]
async fn called_readers_that_are_refused_wait_in_their_places() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    let holder = read(&there, LEASE).await;
    let writer = tokio::spawn(there.lock("a").expire(LEASE).wait_forever().acquire());
    sleep(MOMENT).await;
    let readers: Vec<_> =
        (0..10).map(|_| tokio::spawn(reader(&here, LEASE).wait_forever().acquire())).collect();
    sleep(MOMENT).await;
    assert!(readers.iter().all(|reader| !reader.is_finished()), "a reader overtook the writer");
    holder.release().await.unwrap();
    let writer = writer.await.unwrap().unwrap();
    sleep(SECOND).await;
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    writer.release().await.unwrap();
    let all = timeout(MOMENT, join_all(readers)).await.expect("the readers are called");
    assert!(all.iter().all(|reader| reader.as_ref().unwrap().is_ok()));
}

/// Whether its process is next of all is known only when the ticket before it has left.
#[tokio::test(start_paused = true)]
async fn a_fair_reader_is_not_called_before_a_writer_of_another_process() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    let holder = write(&there).await.unwrap();
    let mut waiting = Vec::new();
    for request in [reader(&here, LEASE), there.lock("a").expire(LEASE), reader(&here, LEASE)] {
        waiting.push(tokio::spawn(request.fair(true).wait_forever().acquire()));
        sleep(MOMENT).await;
    }
    let [first, writer, last] = <[_; 3]>::try_from(waiting).unwrap();
    holder.release().await.unwrap();
    let first = first.await.unwrap().unwrap();
    sleep(2 * SECOND).await;
    assert!(!writer.is_finished() && !last.is_finished());
    first.release().await.unwrap();
    let writer = writer.await.unwrap().unwrap();
    sleep(2 * SECOND).await;
    assert!(!last.is_finished());
    writer.release().await.unwrap();
    drop(last.await.unwrap().unwrap());
}
