//! Readers of one process that make one attempt, in paused time.

use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::test_util::TestLocks;
use crate::{LockError, LockGuard, LockManager, LockRequest};

const LEASE: Duration = Duration::from_secs(60);
const NODE_TIMEOUT: Duration = Duration::from_millis(100);
/// For longer than this, readers do not share a lock without asking the nodes.
const LATER: Duration = Duration::from_millis(51);
const TRIES: usize = 100;

/// Two processes with the same node.
async fn processes(nodes: &TestLocks) -> [LockManager; 2] {
    let process = || nodes.builder().node_timeout(NODE_TIMEOUT).connect();
    [process().await.unwrap(), process().await.unwrap()]
}

fn reader(locks: &LockManager) -> LockRequest {
    locks.lock("a").shared().expire(LEASE)
}

/// Makes many attempts at the same time. Returns their results and their common time.
async fn tries(locks: &LockManager) -> (Vec<Result<LockGuard, LockError>>, Duration) {
    let begun = Instant::now();
    let results = join_all((0..TRIES).map(|_| reader(locks).try_acquire())).await;
    (results, begun.elapsed())
}

/// Each of them would extend the lease and ask the nodes, while the next one waited for it.
#[tokio::test(start_paused = true)]
async fn tries_do_not_wait_for_each_other_while_the_nodes_are_silent() {
    let nodes = TestLocks::new(1);
    let [locks, _] = processes(&nodes).await;
    let holder = reader(&locks).try_acquire().await.unwrap();
    sleep(LATER).await;
    nodes.nodes()[0].freeze();
    let (results, took) = tries(&locks).await;
    for result in results {
        assert!(matches!(result, Err(LockError::Unavailable { .. })), "{result:?}");
    }
    // A reader waits for the first one, extends the lease, and asks the nodes.
    assert!(took <= NODE_TIMEOUT * 7 / 2, "{took:?}");
    nodes.nodes()[0].recover();
    assert!(holder.is_valid());
}

/// The first of them asks the nodes, and the others know its answer.
#[tokio::test(start_paused = true)]
async fn tries_are_refused_together_while_a_writer_of_another_process_waits() {
    let nodes = TestLocks::new(1);
    let [locks, others] = processes(&nodes).await;
    let holder = reader(&locks).try_acquire().await.unwrap();
    let writer = tokio::spawn(others.lock("a").expire(LEASE).wait_forever().acquire());
    sleep(LATER).await;
    let delay = Duration::from_millis(10);
    nodes.nodes()[0].delay(delay);
    let (results, took) = tries(&locks).await;
    for result in results {
        assert!(matches!(result, Err(LockError::Contended { .. })), "{result:?}");
    }
    assert!(took <= 2 * delay, "{took:?}");
    nodes.nodes()[0].recover();
    holder.release().await.unwrap();
    drop(writer.await.unwrap().unwrap());
}

/// As in a `select!` whose other branch runs for long.
#[tokio::test(start_paused = true)]
async fn a_try_does_not_wait_for_a_reader_whose_future_is_not_polled() {
    for is_held in [false, true] {
        let nodes = TestLocks::new(1);
        let [locks, _] = processes(&nodes).await;
        let holder = reader(&locks).try_acquire().await.unwrap();
        let holder = is_held.then_some(holder);
        sleep(LATER).await;
        nodes.nodes()[0].delay(Duration::from_millis(10));
        let mut stalled = Box::pin(reader(&locks).try_acquire());
        assert!((&mut stalled).now_or_never().is_none());
        let next = timeout(2 * NODE_TIMEOUT, reader(&locks).try_acquire()).await;
        drop((next.unwrap().unwrap(), stalled.await.unwrap(), holder));
        nodes.nodes()[0].recover();
        sleep(LATER).await;
        assert!(nodes.nodes()[0].is_empty() && locks.queues().is_empty());
    }
}

/// It has the lock already, together with the reader that asked the nodes.
#[tokio::test(start_paused = true)]
async fn a_waiting_reader_that_is_dropped_leaves_no_lock_behind() {
    for first_ends_first in [false, true] {
        let nodes = TestLocks::new(1);
        let [locks, _] = processes(&nodes).await;
        nodes.nodes()[0].delay(Duration::from_millis(10));
        let mut first = Box::pin(reader(&locks).wait_forever().acquire());
        let mut waiting = Box::pin(reader(&locks).wait_forever().acquire());
        assert!((&mut first).now_or_never().is_none() && (&mut waiting).now_or_never().is_none());
        let guard = first.await.unwrap();
        if first_ends_first {
            guard.release().await.unwrap();
            assert!(!nodes.nodes()[0].is_empty(), "the waiting reader shares the lock");
            drop(waiting);
        } else {
            drop(waiting);
            guard.release().await.unwrap();
        }
        sleep(LATER).await;
        assert!(nodes.nodes()[0].is_empty() && locks.queues().is_empty());
    }
}

/// Returns a reader that has the lock, and a second one whose task has not noticed yet that it shares the lock.
async fn late_reader(
    locks: &LockManager,
    nodes: &TestLocks,
) -> (LockGuard, Pin<Box<impl Future<Output = Result<LockGuard, LockError>>>>) {
    nodes.nodes()[0].delay(Duration::from_millis(10));
    let mut first = Box::pin(reader(locks).wait_forever().acquire());
    let mut late = Box::pin(reader(locks).wait_forever().acquire());
    assert!((&mut first).now_or_never().is_none() && (&mut late).now_or_never().is_none());
    let guard = first.await.unwrap();
    nodes.nodes()[0].recover();
    (guard, late)
}

/// Its lease would end in the past, or it would begin a lease that the nodes do not know.
#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_its_share_after_the_lease_asks_the_nodes() {
    let nodes = TestLocks::new(1);
    let [locks, others] = processes(&nodes).await;
    let (guard, late) = late_reader(&locks, &nodes).await;
    sleep(LEASE).await;
    assert!(!guard.is_valid());
    let writer = others.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let mut late = late;
    assert!(timeout(NODE_TIMEOUT, &mut late).await.is_err(), "two holders exclude each other");
    writer.release().await.unwrap();
    assert!(late.await.unwrap().is_valid());
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_its_share_after_a_denial_asks_the_nodes() {
    let nodes = TestLocks::new(1);
    let [locks, _] = processes(&nodes).await;
    let (guard, late) = late_reader(&locks, &nodes).await;
    nodes.nodes()[0].forget();
    assert!(guard.extend(LEASE).await.is_err());
    let late = late.await.unwrap();
    assert!(late.is_valid() && nodes.nodes()[0].len() == 1, "the nodes do not know the lock");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_its_share_after_a_shutdown_gets_no_lock() {
    let nodes = TestLocks::new(1);
    let [locks, _] = processes(&nodes).await;
    let (guard, late) = late_reader(&locks, &nodes).await;
    drop(guard);
    locks.shutdown().await;
    let error = late.await.unwrap_err();
    assert!(matches!(error, LockError::ShutDown), "{error}");
    sleep(LATER).await;
    assert!(nodes.nodes()[0].is_empty());
}
