//! Marks of writers that wait for readers of their own process, in paused time.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::test_util::TestLocks;
use crate::{LockError, LockGuard, LockManager, LockRequest};

const LEASE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// Two processes with the same nodes.
async fn processes(nodes: &TestLocks) -> [LockManager; 2] {
    [nodes.manager(), nodes.builder().connect().await.unwrap()]
}

fn reader(locks: &LockManager) -> LockRequest {
    locks.lock("a").shared().expire(LEASE)
}

/// Starts a writer, and lets it ask the nodes.
async fn writer(locks: &LockManager) -> JoinHandle<Result<LockGuard, LockError>> {
    let writer = tokio::spawn(locks.lock("a").expire(LEASE).wait_forever().acquire());
    sleep(MOMENT).await;
    writer
}

async fn is_refused(locks: &LockManager) -> bool {
    matches!(reader(locks).try_acquire().await, Err(LockError::Contended { .. }))
}

#[tokio::test(start_paused = true)]
async fn a_writer_behind_readers_of_its_own_process_keeps_out_readers_of_others() {
    for count in [1, 3] {
        let nodes = TestLocks::new(count);
        let [here, there] = processes(&nodes).await;
        let holder = reader(&here).try_acquire().await.unwrap();
        let writer = writer(&here).await;
        for _ in 0..100 {
            assert!(is_refused(&there).await, "{count} nodes");
            sleep(SECOND / 10).await;
        }
        holder.release().await.unwrap();
        let begun = Instant::now();
        let writer = writer.await.unwrap().unwrap();
        assert!(begun.elapsed() < MOMENT, "{:?}", begun.elapsed());
        writer.release().await.unwrap();
        drop(reader(&there).try_acquire().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_gives_up_behind_readers_of_its_own_process_withdraws_its_mark() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    let _holder = reader(&here).try_acquire().await.unwrap();
    let writer = writer(&here).await;
    assert!(is_refused(&there).await);
    writer.abort();
    sleep(MOMENT).await;
    drop(reader(&there).try_acquire().await.unwrap());
}

/// As a server that was restarted without its data.
#[tokio::test(start_paused = true)]
async fn a_writer_waits_for_readers_of_its_own_process_whose_lock_the_nodes_have_forgotten() {
    let nodes = TestLocks::new(1);
    let [here, _] = processes(&nodes).await;
    let holder = reader(&here).try_acquire().await.unwrap();
    let writer = writer(&here).await;
    nodes.nodes()[0].forget();
    sleep(2 * SECOND).await;
    assert!(holder.is_valid() && !writer.is_finished());
    assert!(nodes.nodes()[0].is_empty());
    holder.release().await.unwrap_err();
    drop(timeout(SECOND, writer).await.unwrap().unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn silent_nodes_do_not_delay_a_writer_that_gives_up_behind_readers_of_its_own_process() {
    let nodes = TestLocks::new(1);
    let [here, _] = processes(&nodes).await;
    let _holder = reader(&here).try_acquire().await.unwrap();
    nodes.nodes()[0].freeze();
    let (begun, wait_time) = (Instant::now(), 5 * MOMENT);
    let refused = here.lock("a").wait_time(wait_time).acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Contended { .. }), "{refused:?}");
    assert!(begun.elapsed() <= wait_time + Duration::from_millis(1), "{:?}", begun.elapsed());
}

/// The callers before it may be readers.
#[tokio::test(start_paused = true)]
async fn a_fair_writer_leaves_a_mark_only_when_its_process_is_next() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    let holder = reader(&here).try_acquire().await.unwrap();
    // The first ticket belongs to a permit holder of another process, which waits for the readers.
    let next = tokio::spawn(there.lock("a").permits(2).fair().wait_forever().acquire());
    sleep(MOMENT).await;
    let fair = tokio::spawn(here.lock("a").expire(LEASE).fair().wait_forever().acquire());
    for _ in 0..20 {
        sleep(SECOND / 10).await;
        drop(reader(&there).try_acquire().await.unwrap());
    }
    next.abort();
    sleep(SECOND).await;
    assert!(is_refused(&there).await);
    holder.release().await.unwrap();
    drop(timeout(SECOND, fair).await.unwrap().unwrap().unwrap());
}
