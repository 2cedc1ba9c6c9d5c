//! The transitions of a waiter that no other test reaches, in paused time.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use redlock_logs::Logs;
use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout};

use super::tests::{SECOND, acquisitions, one_node, settle, two_processes};
use crate::jitter::jitter;
use crate::node::Action;
use crate::node::deferring::{DeferringNode, Sent};
use crate::node::fake::FakeMode;
use crate::test_util::TestLocks;
use crate::{LockError, LockManager, MemoryNode};

const LEASE: Duration = Duration::from_secs(60);
const MILLI: Duration = Duration::from_millis(1);

/// Returns a node that executes operations when the test says so, and the operations.
fn deferring() -> (DeferringNode, UnboundedReceiver<Sent>) {
    let (mut node, sent) = DeferringNode::new();
    (node.capabilities.ordered, node.capabilities.shared) = (true, true);
    node.capabilities.several_keys = true;
    (node, sent)
}

/// Returns a manager on a node whose questions are counted, and its store.
async fn counted() -> (LockManager, MemoryNode, Arc<AtomicUsize>) {
    let (node, mut sent) = deferring();
    let (store, asked) = (node.store.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Some(sent) = sent.recv().await {
            count.fetch_add(
                usize::from(matches!(sent.op.action, Action::Acquire { .. })),
                Ordering::SeqCst,
            );
            sent.execute();
        }
    });
    (LockManager::builder().node(node).connect().await.unwrap(), store, asked)
}

/// The first reader is refused before the release, and hears of it after the release. Meanwhile a second reader asks, whose
/// question must not reset the signal of the first one. Its lease is too short to join another one.
#[tokio::test(start_paused = true)]
async fn a_release_is_not_missed_while_another_reader_asks() {
    let (node, mut sent) = deferring();
    let store = node.store.clone();
    let here = LockManager::builder().node(node).connect().await.unwrap();
    let there = LockManager::builder().memory_node(&store).connect().await.unwrap();
    let writer = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let request = |expire| here.lock("a").shared(true).expire(expire).wait_forever();
    let read = |expire| tokio::spawn(request(expire).acquire());
    let subscribes = read(LEASE);
    for _ in 0..2 {
        sent.recv().await.unwrap().execute();
    }
    settle().await;
    let first = read(LEASE);
    settle().await;
    subscribes.abort();
    let asked = sent.recv().await.unwrap();
    let deliver = asked.execute_and_hold();
    let second = read(150 * MILLI);
    writer.release().await.unwrap();
    let held_back = sent.recv().await.unwrap();
    let begun = Instant::now();
    deliver();
    sent.recv().await.unwrap().execute();
    drop(first.await.unwrap().unwrap());
    assert!(begun.elapsed() < 10 * MILLI, "{:?}", begun.elapsed());
    held_back.execute();
    drop(second.await.unwrap().unwrap());
}

/// The nodes grant the lock that they have forgotten. The waiter gives it back, which publishes a release, and must not take
/// its own release for that of the readers.
#[tokio::test(start_paused = true)]
async fn a_writer_asks_seldom_while_readers_of_its_process_rely_on_a_forgotten_lock() {
    let (here, store, asked) = counted().await;
    let reader = here.lock("a").shared(true).expire(LEASE).try_acquire().await.unwrap();
    let writer = tokio::spawn(here.lock("a").expire(LEASE).wait_forever().acquire());
    settle().await;
    store.forget();
    asked.store(0, Ordering::SeqCst);
    sleep(10 * SECOND).await;
    let questions = asked.load(Ordering::SeqCst);
    assert!((20..=50).contains(&questions), "{questions} questions in 10 s");
    assert!(reader.is_valid() && !writer.is_finished());
    reader.release().await.unwrap_err();
    drop(timeout(SECOND, writer).await.unwrap().unwrap().unwrap());
}

/// The lock of another process is gone, and nobody has published that. The waiter does not poll the nodes while the lock is
/// held here, and gets it by a hand-over.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_pause_is_over_does_not_ask_beside_a_holder_of_its_process() {
    let (here, node) = one_node();
    node.occupy(LEASE);
    let request = || here.lock("a").expire(LEASE);
    let waiter = tokio::spawn(request().wait_forever().acquire());
    settle().await;
    node.forget();
    let holder = request().try_acquire().await.unwrap();
    let before = acquisitions(&node);
    sleep(2 * SECOND).await;
    assert_eq!(acquisitions(&node), before);
    holder.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    // The lease is 2 s old, so the waiter has asked for one of its own.
    assert_eq!(acquisitions(&node), before + 1);
}

/// The nodes have refused it, and it has not noticed yet that its process holds the lock.
#[tokio::test(start_paused = true)]
async fn a_lock_is_handed_over_to_a_waiter_that_pauses() {
    let (here, node) = one_node();
    node.occupy(LEASE);
    let request = || here.lock("a").expire(LEASE);
    let mut waiter = Box::pin(request().wait_forever().acquire());
    // It asks, subscribes, and asks again.
    let pauses = async {
        while acquisitions(&node) < 2 {
            let _ = poll_fn(|context| Poll::Ready(waiter.as_mut().poll(context).is_ready())).await;
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            let _ = poll_fn(|context| Poll::Ready(waiter.as_mut().poll(context).is_ready())).await;
            tokio::task::yield_now().await;
        }
    };
    pauses.await;
    node.forget();
    let holder = request().try_acquire().await.unwrap();
    let before = acquisitions(&node);
    holder.release().await.unwrap();
    let guard = waiter.now_or_never().expect("handed over").unwrap();
    assert_eq!(acquisitions(&node), before);
    assert_eq!(node.releases(), 0);
    guard.release().await.unwrap();
}

/// A set has waited for longer than the caller that is first in the queue of its next key, and goes in front of it. Only the
/// set asks then.
#[tokio::test(start_paused = true)]
async fn a_waiter_in_front_of_which_another_one_is_put_does_not_ask() {
    let (here, _store, asked) = counted().await;
    let request = |key: &str| here.lock(key).expire(LEASE);
    let [a, b] = ["a", "b"].map(|key| request(key).try_acquire());
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    let set = tokio::spawn(here.lock_all(["a", "b"]).expire(LEASE).wait_forever().acquire());
    settle().await;
    let later = tokio::spawn(request("b").wait_forever().acquire());
    settle().await;
    a.release().await.unwrap();
    settle().await;
    asked.store(0, Ordering::SeqCst);
    b.release().await.unwrap();
    let set = timeout(SECOND, set).await.unwrap().unwrap().unwrap();
    sleep(SECOND).await;
    assert!(!later.is_finished());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    set.release().await.unwrap();
    drop(timeout(SECOND, later).await.unwrap().unwrap().unwrap());
}

/// The waiter behind it has been called meanwhile, because it became the first.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_returns_to_the_head_asks_before_the_next_one() {
    let (here, store, asked) = counted().await;
    let request = || here.lock("a").expire(LEASE);
    let holder = request().fenced(true).try_acquire().await.unwrap();
    let first = tokio::spawn(request().fenced(true).wait_forever().acquire());
    settle().await;
    let second = tokio::spawn(request().wait_forever().acquire());
    settle().await;
    store.forget();
    asked.store(0, Ordering::SeqCst);
    // The lock is handed over, and the nodes deny it when the first waiter confirms its number.
    let _ = holder.release().await;
    let first = timeout(SECOND, first).await.unwrap().unwrap().unwrap();
    sleep(SECOND).await;
    assert!(!second.is_finished());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    first.release().await.unwrap();
    drop(timeout(SECOND, second).await.unwrap().unwrap().unwrap());
}

/// No message tells the waiter that the lock is free.
#[tokio::test(start_paused = true)]
async fn a_waiter_asks_once_more_at_the_end_of_its_waiting_time() {
    let (here, node) = one_node();
    node.occupy(LEASE);
    let (begun, wait_time) = (Instant::now(), 100 * MILLI);
    let waiter = tokio::spawn(here.lock("a").expire(LEASE).wait_time(wait_time).acquire());
    sleep(wait_time / 2).await;
    node.forget();
    drop(waiter.await.unwrap().unwrap());
    assert!((wait_time..wait_time + 3 * MILLI).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_time_of_zero_is_one_attempt() {
    let (here, node) = one_node();
    let request = || here.lock("a").expire(LEASE).wait_time(Duration::ZERO);
    let holder = request().acquire().await.unwrap();
    assert_eq!(acquisitions(&node), 1);
    let refused = request().acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Contended { remaining: Some(_), .. }), "{refused:?}");
    assert_eq!(acquisitions(&node), 1, "a lock that this process holds costs no question");
    holder.release().await.unwrap();
    node.occupy(LEASE);
    let refused = request().acquire().await.unwrap_err();
    assert!(refused.is_contended());
    assert_eq!(acquisitions(&node), 2);
}

/// The first waiter has subscribed, and is dropped before its subscription is in effect. The lock becomes free before that,
/// and after the refusal of the second waiter.
#[tokio::test(start_paused = true)]
async fn a_subscription_that_is_not_in_effect_is_not_relied_on() {
    let (here, node) = one_node();
    node.set(FakeMode::Up(20 * MILLI));
    node.occupy(LEASE);
    let request = || here.lock("a").expire(LEASE).wait_forever();
    let first = tokio::spawn(request().acquire());
    settle().await;
    let second = tokio::spawn(request().acquire());
    // The first question is refused after 20 ms.
    sleep(29 * MILLI).await;
    first.abort();
    // The second waiter is refused after 50 ms.
    sleep(25 * MILLI).await;
    node.forget();
    drop(timeout(60 * MILLI, second).await.expect("without a poll").unwrap().unwrap());
}

/// For a person who wants to know why a waiter does not wake.
#[tokio::test(start_paused = true)]
async fn the_log_says_why_a_waiter_slept_and_what_has_woken_it() {
    let logs = Logs::collect();
    let (here, there, _) = two_processes(1);
    let holder = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let waiters =
        [(); 2].map(|()| tokio::spawn(here.lock("a").expire(LEASE).wait_forever().acquire()));
    settle().await;
    holder.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
    for ended in [
        "pause=Subscribe wake=Subscribed",
        "pause=Release wake=Release",
        "pause=Queue wake=Notified",
        "pause=Holder wake=Notified",
    ] {
        assert_eq!(logs.count("TRACE", ended), 1, "{ended}: {:?}", logs.lines());
    }
}

/// A writer gets the lock while the first reader asks, so the second reader meets a holder when it joins. The grant of the
/// first reader calls it.
#[tokio::test(start_paused = true)]
async fn a_reader_that_meets_a_holder_behind_an_asking_reader_is_called_again() {
    let (node, mut sent) = deferring();
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    let read = || tokio::spawn(locks.lock("a").shared(true).expire(LEASE).wait_forever().acquire());
    let first = read();
    let asked = sent.recv().await.unwrap();
    let writer = tokio::spawn(locks.lock("a").expire(LEASE).try_acquire());
    sent.recv().await.unwrap().execute();
    let writer = writer.await.unwrap().unwrap();
    let second = read();
    settle().await;
    asked.execute();
    tokio::spawn(async move {
        while let Some(sent) = sent.recv().await {
            sent.execute();
        }
    });
    settle().await;
    writer.release().await.unwrap();
    let _first = timeout(SECOND, first).await.unwrap().unwrap().unwrap();
    drop(timeout(SECOND, second).await.expect("the reader is called").unwrap().unwrap());
}

/// The reader sleeps until the holder of its process ends. Meanwhile an older waiter for several keys goes in front of it,
/// another process gets the lock, and the older waiter gives up.
#[tokio::test(start_paused = true)]
async fn a_displaced_reader_is_called_when_the_waiter_before_it_gives_up() {
    let (here, there, _) = two_processes(1);
    let request = |locks: &LockManager, key: &str| locks.lock(key).expire(LEASE);
    let [a, b] = ["a", "b"].map(|key| request(&here, key).try_acquire());
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    let set = tokio::spawn(here.lock_all(["a", "b"]).expire(LEASE).wait_forever().acquire());
    settle().await;
    let reader = tokio::spawn(request(&here, "b").shared(true).wait_forever().acquire());
    settle().await;
    a.release().await.unwrap();
    settle().await;
    b.release().now_or_never().expect("at once").unwrap();
    let elsewhere = request(&there, "b").try_acquire().now_or_never().expect("at once").unwrap();
    settle().await;
    set.abort();
    settle().await;
    elsewhere.release().await.unwrap();
    drop(timeout(SECOND, reader).await.expect("the reader is called").unwrap().unwrap());
}

/// Otherwise a new caller asks the nodes before it joins a queue whose waiters are in an outage.
#[tokio::test(start_paused = true)]
async fn a_new_reader_in_an_outage_queues_behind_a_writer_of_its_process() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let read = || locks.lock("a").shared(true).expire(LEASE);
    let holder = read().try_acquire().await.unwrap();
    let writer = tokio::spawn(locks.lock("a").expire(LEASE).wait_forever().acquire());
    settle().await;
    nodes.nodes()[0].fail();
    // The writer notices the outage within half a second.
    sleep(SECOND).await;
    let reader = tokio::spawn(read().wait_forever().acquire());
    settle().await;
    assert!(!writer.is_finished() && !reader.is_finished());
    nodes.nodes()[0].recover();
    holder.release().await.unwrap();
    let writer = timeout(SECOND, writer).await.unwrap().unwrap().unwrap();
    assert!(!reader.is_finished());
    writer.release().await.unwrap();
    drop(timeout(SECOND, reader).await.unwrap().unwrap().unwrap());
}

/// A lock is handed over to a waiter while the waiter looks at its queue in another thread. An earlier version lost the lock
/// then. The holder wakes the waiter again and again before it releases the lock, so that the two meet often.
#[test]
fn hand_overs_and_waiters_in_several_threads_lose_no_lock() {
    const TIME: Duration = Duration::from_millis(800);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let builder = LockManager::builder().memory_node(&MemoryNode::new());
    let locks = runtime.block_on(builder.connect()).unwrap();
    let turns = || {
        let (_entered, begun) = (runtime.enter(), Instant::now());
        while begun.elapsed() < TIME {
            let mut waiter = Box::pin(locks.lock("a").expire(LEASE).wait_time(LEASE / 6).acquire());
            let guard = loop {
                if let Some(result) = waiter.as_mut().now_or_never() {
                    break result.expect("no lock is lost");
                }
            };
            for _ in 0..jitter(0..60) {
                locks.queues().wake_readers(guard.held());
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(turns);
        }
    });
    assert!(locks.queues().is_empty());
}
