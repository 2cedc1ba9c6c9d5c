//! Marks of writers that wait for readers of their own process, in paused time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::node::deferring::DeferringNode;
use crate::node::{Action, Ask};
use crate::test_util::TestLocks;
use crate::{LockError, LockGuard, LockManager, LockRequest, MemoryNode};

const LEASE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// Two processes with the same nodes.
async fn processes(nodes: &TestLocks) -> [LockManager; 2] {
    [nodes.manager(), nodes.builder().connect().await.unwrap()]
}

fn reader(locks: &LockManager) -> LockRequest {
    locks.lock("a").shared(true).expire(LEASE)
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

/// Otherwise it would sleep until the former writer releases the lock, which renewals postpone.
#[tokio::test(start_paused = true)]
async fn a_writer_keeps_out_readers_as_soon_as_the_holder_of_its_process_is_a_reader() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    let holder = here.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let writer = writer(&here).await;
    holder.downgrade().await.unwrap();
    sleep(MOMENT).await;
    assert!(is_refused(&there).await);
    holder.release().await.unwrap();
    drop(timeout(MOMENT, writer).await.unwrap().unwrap().unwrap());
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

/// It asks the nodes like any other waiter, so its last question may end after its waiting time.
#[tokio::test(start_paused = true)]
async fn a_writer_behind_readers_of_its_own_process_gives_up_in_an_outage() {
    let nodes = TestLocks::new(1);
    let [here, _] = processes(&nodes).await;
    let holder = reader(&here).try_acquire().await.unwrap();
    nodes.nodes()[0].freeze();
    let (begun, wait_time) = (Instant::now(), 5 * MOMENT);
    let refused = here.lock("a").wait_time(wait_time).acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Unavailable { .. }), "{refused:?}");
    // The node timeout is a second by default.
    assert!(begun.elapsed() <= wait_time + SECOND + MOMENT, "{:?}", begun.elapsed());
    assert!(holder.is_valid() && here.queues().len() == 1);
}

/// The callers before it may be readers.
#[tokio::test(start_paused = true)]
async fn a_fair_writer_leaves_a_mark_only_when_its_process_is_next() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    let holder = reader(&here).try_acquire().await.unwrap();
    // The first ticket belongs to a permit holder of another process, which waits for the readers.
    let next = tokio::spawn(there.lock("a").permits(2).fair(true).wait_forever().acquire());
    sleep(MOMENT).await;
    let fair = tokio::spawn(here.lock("a").expire(LEASE).fair(true).wait_forever().acquire());
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

/// A set that waits, in this process or in another one, keeps out later readers of the key for which it waits.
#[tokio::test(start_paused = true)]
async fn a_set_leaves_its_mark_also_behind_readers_of_its_own_process() {
    for count in [1, 3] {
        let nodes = TestLocks::new(count);
        let [here, there] = processes(&nodes).await;
        for locks in [&here, &there] {
            let holder = reader(&here).try_acquire().await.unwrap();
            let set = locks.lock_all(["a", "b"]).expire(LEASE).wait_forever().acquire();
            let set = tokio::spawn(set);
            sleep(MOMENT).await;
            for _ in 0..30 {
                assert!(is_refused(&there).await, "{count} nodes");
                sleep(SECOND / 10).await;
            }
            let begun = Instant::now();
            holder.release().await.unwrap();
            drop(set.await.unwrap().unwrap());
            assert!(begun.elapsed() < MOMENT, "{:?}", begun.elapsed());
            sleep(MOMENT).await;
        }
    }
}

/// The set could not use the key as long as it waits for another one.
#[tokio::test(start_paused = true)]
async fn a_waiting_set_keeps_no_reader_out_of_its_other_keys() {
    let nodes = TestLocks::new(1);
    let [here, there] = processes(&nodes).await;
    let holder = reader(&there).try_acquire().await.unwrap();
    let other = || there.lock("b").shared(true).expire(LEASE);
    let inside = other().try_acquire().await.unwrap();
    let set = tokio::spawn(here.lock_all(["a", "b"]).expire(LEASE).wait_forever().acquire());
    // Until then, a reader joins the lock of the other one of its process.
    sleep(3 * MOMENT).await;
    assert!(is_refused(&there).await);
    for _ in 0..30 {
        drop(other().try_acquire().await.expect("the set waits for another key"));
        sleep(SECOND / 10).await;
    }
    // Now the set waits for this key, and keeps the mark of the other one.
    holder.release().await.unwrap();
    sleep(MOMENT).await;
    for _ in 0..30 {
        assert!(is_refused(&there).await && other().try_acquire().await.is_err());
        sleep(SECOND / 10).await;
    }
    drop(inside);
    drop(set.await.unwrap().unwrap());
}

/// Starts to wait for a lock. Returns when the waiter has polled.
async fn waits(request: LockRequest) -> JoinHandle<Result<LockGuard, LockError>> {
    let waiter = tokio::spawn(request.wait_forever().acquire());
    sleep(SECOND).await;
    waiter
}

/// Each end of a holder and of a wait wakes the callers that it concerns, without waiting for their polls.
#[tokio::test(start_paused = true)]
async fn callers_are_woken_when_their_obstacle_ends() {
    for count in [1, 3] {
        let nodes = TestLocks::new(count);
        let [here, there] = processes(&nodes).await;
        let woken = async |waiting: JoinHandle<Result<LockGuard, LockError>>| {
            let begun = Instant::now();
            drop(waiting.await.unwrap().unwrap());
            assert!(begun.elapsed() < MOMENT, "{count} nodes: {:?}", begun.elapsed());
            sleep(MOMENT).await;
        };
        // The last reader, before a writer.
        let holders = [
            reader(&here).try_acquire().await.unwrap(),
            reader(&there).try_acquire().await.unwrap(),
        ];
        let writing = waits(there.lock("a").expire(LEASE)).await;
        for holder in holders {
            assert!(!writing.is_finished());
            holder.release().await.unwrap();
        }
        woken(writing).await;
        // A writer that becomes a reader, before a reader.
        let writer = here.lock("a").expire(LEASE).try_acquire().await.unwrap();
        let reading = waits(reader(&there)).await;
        writer.downgrade().await.unwrap();
        woken(reading).await;
        // A writer that gives up, before a reader.
        let writing = waits(here.lock("a").expire(LEASE)).await;
        let reading = waits(reader(&there)).await;
        assert!(!reading.is_finished());
        writing.abort();
        woken(reading).await;
        drop(writer);
        sleep(MOMENT).await;
        // A permit that is returned while another one is held.
        if count == 1 {
            let permit = |locks: &LockManager| locks.lock("a").permits(2).expire(LEASE);
            let _held = permit(&here).try_acquire().await.unwrap();
            let returned = permit(&here).try_acquire().await.unwrap();
            let next = waits(permit(&there)).await;
            returned.release().await.unwrap();
            woken(next).await;
        }
    }
}

/// The memory node releases the other keys of a set although one of them was lost.
#[tokio::test(start_paused = true)]
async fn a_set_that_has_lost_a_key_releases_the_others() {
    let node = MemoryNode::new();
    let manager = || LockManager::builder().memory_node(&node).connect();
    let (here, there) = (manager().await.unwrap(), manager().await.unwrap());
    for lost in ["a", "b", "c"] {
        let set = here.lock_all(["a", "b", "c"]).expire(LEASE).try_acquire().await.unwrap();
        node.remove(lost);
        let next = there.lock(lost).expire(LEASE).try_acquire().await.unwrap();
        set.release().await.unwrap_err();
        assert_eq!(node.len(), 1, "{lost} was lost");
        next.release().await.unwrap();
    }
}

/// The simulation found a mark that stopped readers on one node for a second.
#[tokio::test(start_paused = true)]
async fn the_mark_is_withdrawn_from_a_minority_that_refuses_the_lock() {
    let nodes = TestLocks::new(3);
    let (locks, others) = (nodes.manager(), nodes.builder().connect().await.unwrap());
    let first = LockManager::builder().test_clock(nodes.clock()).node(nodes.nodes()[0].clone());
    let first = first.connect().await.unwrap();
    let reader = others.lock("a").shared(true).try_acquire().await.unwrap();
    let reader_of_first = first.lock("a").shared(true).try_acquire().await.unwrap();
    let writer = tokio::spawn(locks.lock("a").wait_forever().acquire());
    sleep(2 * MOMENT).await;
    let next = LockManager::builder().test_clock(nodes.clock()).node(nodes.nodes()[0].clone());
    let next = next.connect().await.unwrap();
    let refused = next.lock("a").shared(true).try_acquire().await.unwrap_err();
    assert!(refused.is_contended(), "the writer has left no mark: {refused:?}");
    reader.release().await.unwrap();
    let writer = writer.await.unwrap().unwrap();
    sleep(2 * MOMENT).await;
    let reader_of_next = next.lock("a").shared(true).try_acquire().await.unwrap();
    drop((writer, reader_of_first, reader_of_next));
}

/// The grant has removed its mark.
#[tokio::test(start_paused = true)]
async fn a_writer_that_was_granted_the_lock_by_one_node_withdraws_nothing() {
    let (mut node, mut sent) = DeferringNode::new();
    (node.capabilities.ordered, node.capabilities.shared) = (true, true);
    let (store, marks) = (node.store.clone(), Arc::new(Mutex::new([0; 2])));
    let seen = Arc::clone(&marks);
    tokio::spawn(async move {
        while let Some(operation) = sent.recv().await {
            match operation.op.action {
                Action::Acquire { ask: Ask { mark: Some(_), .. }, .. } => seen.lock()[0] += 1,
                Action::Withdraw { .. } => seen.lock()[1] += 1,
                _ => {}
            }
            operation.execute();
        }
    });
    let here = LockManager::builder().node(node).connect().await.unwrap();
    let there = LockManager::builder().memory_node(&store).connect().await.unwrap();
    let reader = reader(&there).try_acquire().await.unwrap();
    let writer = writer(&here).await;
    reader.release().await.unwrap();
    drop(writer.await.unwrap().unwrap());
    sleep(MOMENT).await;
    let [left, withdrawn] = *marks.lock();
    assert!(left > 0 && withdrawn == 0, "{left} questions with a mark, {withdrawn} withdrawals");
}

/// The first node that takes marks. A plain acquisition does not distinguish readers that have ended, or marks, from a
/// lock. A fenced one does at once.
#[tokio::test(start_paused = true)]
async fn a_caller_that_meets_readers_for_the_first_time_asks_once_more() {
    for (fenced, expected) in [(false, vec![false, true]), (true, vec![true])] {
        let (mut node, mut sent) = DeferringNode::new();
        (node.capabilities.ordered, node.capabilities.shared) = (true, true);
        let (store, asked) = (node.store.clone(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Some(operation) = sent.recv().await {
                if let Action::Acquire { ask, .. } = operation.op.action {
                    seen.lock().push(ask.met_marks);
                }
                operation.execute();
            }
        });
        let here = LockManager::builder().node(node).connect().await.unwrap();
        let there = LockManager::builder().memory_node(&store).connect().await.unwrap();
        let _reader = reader(&there).try_acquire().await.unwrap();
        here.lock("a").fenced(fenced).try_acquire().await.unwrap_err();
        assert_eq!(*asked.lock(), expected, "fenced: {fenced}");
    }
}
