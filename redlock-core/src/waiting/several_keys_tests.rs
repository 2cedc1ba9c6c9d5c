//! Waiting for locks of several keys, in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
#[cfg(feature = "test-util")]
use tokio_util::sync::CancellationToken;

use super::tests::{SECOND, acquisitions, nodes, settle, two_processes, wait};
use crate::clock::fake::RuntimeClock;
use crate::node::deferring::{DeferringNode, Sent};
use crate::node::fake::FakeMode;
use crate::node::{Action, Ask, Node};
#[cfg(feature = "test-util")]
use crate::test_util::TestLocks;
use crate::{LockError, LockGuard, LockManager, LockManagerBuilder, MemoryNode};

const MILLI: Duration = Duration::from_millis(1);

type SetWaiter = JoinHandle<Result<LockGuard, LockError>>;

fn wait_for_all<const N: usize>(locks: &LockManager, keys: [&'static str; N]) -> SetWaiter {
    let request = locks.lock_all(keys).expire(30 * SECOND).wait_time(60 * SECOND);
    tokio::spawn(request.acquire())
}

async fn acquired(waiter: SetWaiter) -> LockGuard {
    timeout(SECOND / 100, waiter).await.expect("no timer is needed").unwrap().unwrap()
}

/// The waiter sleeps in the queue of `b`, then of `c`, and takes no time of its own between them.
#[tokio::test(start_paused = true)]
async fn a_waiter_goes_from_key_to_key_and_is_woken_by_each_release() {
    let (here, there, _) = two_processes(3);
    for second in [&there, &here] {
        let first = wait(&there, "b").await.unwrap();
        let waiter = wait_for_all(&here, ["a", "b", "c"]);
        settle().await;
        let second = wait(second, "c").await.unwrap();
        for guard in [first, second] {
            sleep(10 * MILLI).await;
            assert!(!waiter.is_finished());
            guard.release().await.unwrap();
        }
        acquired(waiter).await.release().await.unwrap();
        assert!(here.queues().is_empty() && there.queues().is_empty());
    }
}

/// A refusal in this process costs no command.
#[tokio::test(start_paused = true)]
async fn a_set_with_a_key_of_this_process_is_refused_without_asking_the_nodes() {
    let (locks, nodes) = nodes(3);
    let held = locks.lock_all(["b", "c"]).try_acquire().await.unwrap();
    let before = acquisitions(&nodes[0]);
    for keys in [["a", "b"], ["c", "d"]] {
        let error = locks.lock_all(keys).try_acquire().await.unwrap_err();
        assert!(error.is_contended() && error.votes().unwrap().is_empty(), "{error:?}");
    }
    let waiters = [wait_for_all(&locks, ["a", "b"]), wait_for_all(&locks, ["a", "c"])];
    assert!(locks.lock("c").try_acquire().await.unwrap_err().is_contended());
    sleep(SECOND).await;
    assert_eq!(acquisitions(&nodes[0]), before);
    held.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
    assert!(locks.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_queue_of_a_released_set_wakes_its_first_waiter() {
    let (here, _, _) = two_processes(1);
    let held = here.lock_all(["a", "b", "c"]).expire(30 * SECOND).try_acquire().await.unwrap();
    let waiters = ["a", "b", "c"].map(|key| {
        let locks = here.clone();
        tokio::spawn(async move { wait(&locks, key).await })
    });
    settle().await;
    held.release().await.unwrap();
    for waiter in waiters {
        timeout(SECOND / 100, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
    }
    assert!(here.queues().is_empty());
}

/// The nodes hold another set of keys than the waiter needs.
#[tokio::test(start_paused = true)]
async fn a_lock_is_handed_over_only_to_a_waiter_with_the_same_keys() {
    let (here, there, nodes) = two_processes(1);
    // From a set to a key, from a key to a set, from a set to an equal set.
    let set = here.lock_all(["a", "b"]).expire(30 * SECOND).try_acquire().await.unwrap();
    let one = {
        let locks = here.clone();
        tokio::spawn(async move { wait(&locks, "a").await })
    };
    settle().await;
    let equal = wait_for_all(&here, ["a", "b"]);
    settle().await;
    set.release().await.unwrap();
    let one = timeout(SECOND / 100, one).await.unwrap().unwrap().unwrap();
    assert!(there.lock("b").try_acquire().await.unwrap().release().await.is_ok());
    one.release().await.unwrap();
    let equal = acquired(equal).await;
    for key in ["a", "b"] {
        assert!(nodes[0].time_to_live(key).is_some(), "{key} is not held on the node");
        assert!(there.lock(key).try_acquire().await.unwrap_err().is_contended(), "{key}");
    }
    equal.release().await.unwrap();
    assert!(nodes[0].is_empty());
}

/// The caller of the set has waited for longer, but in the queue of another key.
#[tokio::test(start_paused = true)]
async fn a_caller_that_comes_from_another_queue_keeps_the_place_of_its_arrival() {
    let (here, there, _) = two_processes(1);
    let a = wait(&there, "a").await.unwrap();
    let set = wait_for_all(&here, ["a", "b"]);
    sleep(MILLI).await;
    let b = wait(&here, "b").await.unwrap();
    let later = {
        let locks = here.clone();
        tokio::spawn(async move { wait(&locks, "b").await })
    };
    sleep(MILLI).await;
    a.release().await.unwrap();
    sleep(MILLI).await;
    b.release().await.unwrap();
    let set = acquired(set).await;
    assert!(!later.is_finished());
    set.release().await.unwrap();
    later.await.unwrap().unwrap().release().await.unwrap();
}

/// Returns a node that takes these times for its acquisitions, in turn, its store, and the number of acquisitions so far.
fn slow_node(times: [Duration; 2]) -> (DeferringNode, MemoryNode, Arc<AtomicUsize>) {
    let (mut node, mut sent) = DeferringNode::new();
    (node.capabilities.ordered, node.capabilities.several_keys) = (true, true);
    let (store, asked) = (node.store.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Some(sent) = sent.recv().await {
            if matches!(sent.op.action, Action::Acquire { .. }) {
                sleep(times[count.fetch_add(1, Ordering::SeqCst) % 2]).await;
            }
            sent.execute();
        }
    });
    (node, store, asked)
}

/// Otherwise two waiters of one queue would ask the nodes.
#[tokio::test(start_paused = true)]
async fn a_caller_that_comes_from_another_queue_stands_behind_a_waiter_that_asks_the_nodes() {
    let (node, store, asked) = slow_node([MILLI; 2]);
    let here = LockManager::builder().node(node).connect().await.unwrap();
    let there = LockManager::builder().memory_node(&store).connect().await.unwrap();
    let [a, b] = [wait(&there, "a").await.unwrap(), wait(&there, "b").await.unwrap()];
    let set = wait_for_all(&here, ["a", "b"]);
    sleep(SECOND / 10).await;
    let asking = {
        let locks = here.clone();
        tokio::spawn(async move { wait(&locks, "b").await })
    };
    sleep(SECOND / 10).await;
    a.release().await.unwrap();
    sleep(SECOND).await;
    asked.store(0, Ordering::SeqCst);
    sleep(10 * SECOND).await;
    let questions = asked.load(Ordering::SeqCst);
    assert!((20..=42).contains(&questions), "{questions} questions in 10 s");
    b.release().await.unwrap();
    let first = asking.await.unwrap().unwrap();
    assert!(!set.is_finished());
    first.release().await.unwrap();
    set.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_a_set_and_is_named() {
    let clock = Arc::new(RuntimeClock::new());
    let node = MemoryNode::with_clock(clock.clone());
    let locks = LockManager::builder().memory_node(&node).max_waiters(1).connect().await.unwrap();
    let _held = locks.lock("b").try_acquire().await.unwrap();
    let first = wait_for_all(&locks, ["a", "b"]);
    settle().await;
    let error = wait_for_all(&locks, ["b", "c"]).await.unwrap().unwrap_err();
    let LockError::TooManyWaiters { key, limit, .. } = error else { panic!("{error:?}") };
    assert_eq!((key.as_str(), limit), ("b", 1));
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let next = wait_for_all(&locks, ["b", "c"]);
    settle().await;
    assert!(!next.is_finished(), "the place of the dropped waiter is not free");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_set_outlasts_a_short_outage_and_fails_after_a_long_one() {
    let (locks, nodes) = nodes(3);
    for long in [false, true] {
        for node in &nodes {
            node.occupy(3600 * SECOND);
        }
        let waiter = wait_for_all(&locks, ["a", "b"]);
        sleep(SECOND).await;
        for node in &nodes {
            node.set(FakeMode::Down);
        }
        let begun = Instant::now();
        if long {
            let error = timeout(5 * SECOND, waiter).await.unwrap().unwrap().unwrap_err();
            assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
            assert!(begun.elapsed() >= 2 * SECOND);
            // A new caller fails within one ballot.
            let begun = Instant::now();
            let error = wait_for_all(&locks, ["a", "b"]).await.unwrap().unwrap_err();
            assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
            assert!(begun.elapsed() < SECOND / 10);
        } else {
            sleep(SECOND).await;
            for node in &nodes {
                node.forget();
            }
            for node in &nodes {
                node.set(FakeMode::Up(Duration::ZERO));
            }
            let guard = timeout(SECOND, waiter).await.unwrap().unwrap().unwrap();
            guard.release().await.unwrap();
        }
        assert!(locks.queues().is_empty());
    }
}

/// A crashed caller has left `a` on one node, and another one `b` on the other node.
#[tokio::test(start_paused = true)]
async fn a_set_for_which_each_node_names_another_key_waits_until_its_wait_time_is_over() {
    let (here, there, nodes) = two_processes(2);
    let stale = |node: &MemoryNode| {
        let node = Arc::new(node.clone()) as Arc<dyn Node>;
        LockManagerBuilder::with_nodes(vec![node], Arc::new(RuntimeClock::new()))
    };
    // Each node alone has another key, so that no quorum holds any of them.
    let _left =
        [wait(&stale(&nodes[0]), "a").await.unwrap(), wait(&stale(&nodes[1]), "b").await.unwrap()];
    let request = here.lock_all(["a", "b"]).wait_time(SECOND);
    let begun = Instant::now();
    let error = request.acquire().await.unwrap_err();
    assert!(error.is_split() && begun.elapsed() >= SECOND, "{error:?}");
    assert!(here.queues().is_empty() && there.queues().is_empty());
}

/// Each refusal sends the caller to the queue of the other key, where nobody waits.
#[tokio::test(start_paused = true)]
async fn a_set_pauses_while_the_nodes_name_one_key_and_then_another() {
    let (mut locks, mut questions) = (LockManager::builder(), Vec::new());
    // The first reply decides.
    for (key, times) in [("a", [MILLI, 3 * MILLI]), ("b", [2 * MILLI; 2])] {
        let (node, store, asked) = slow_node(times);
        let stale = LockManager::builder().memory_node(&store).connect().await.unwrap();
        stale.lock(key).expire(60 * SECOND).try_acquire().await.unwrap().keep_until_expiry();
        locks = locks.node(node);
        questions.push(asked);
    }
    let locks = locks.connect().await.unwrap();
    let request = locks.lock_all(["a", "b"]).wait_time(SECOND);
    assert!(request.acquire().await.unwrap_err().is_split());
    let questions = questions[0].load(Ordering::SeqCst);
    // Some are followed by a long pause, because both nodes name the same key.
    assert!((4..=70).contains(&questions), "{questions} questions in a second");
}

/// The readers of each key are in two processes, which take turns so that the key is never free. When the readers of one
/// key have left, those of the other key must not let new readers of the first key in.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_set_gets_its_turn_beside_readers_of_two_keys() {
    let nodes = TestLocks::new(1);
    let stop = CancellationToken::new();
    let mut readers = Vec::new();
    for (key, reads) in [("a", 5 * MILLI), ("b", 50 * MILLI)] {
        for start in [Duration::ZERO, reads / 2] {
            let (locks, stop) = (nodes.builder().connect().await.unwrap(), stop.clone());
            readers.push(tokio::spawn(async move {
                sleep(start).await;
                while !stop.is_cancelled() {
                    let reader = locks.lock(key).shared(true).expire(SECOND).wait_forever();
                    let reader = reader.acquire().await.unwrap();
                    sleep(reads).await;
                    reader.release().await.unwrap();
                }
            }));
        }
    }
    sleep(SECOND).await;
    for _ in 0..10 {
        let set = nodes.manager().lock_all(["a", "b"]).wait_time(SECOND).acquire().await;
        set.expect("the readers starve the set").release().await.unwrap();
    }
    stop.cancel();
    for reader in readers {
        reader.await.unwrap();
    }
}

/// Sends the operations of a test to the stores of its nodes.
struct Deferred(Vec<UnboundedReceiver<Sent>>);

impl Deferred {
    /// Returns the next operation on each node.
    async fn next(&mut self) -> Vec<Sent> {
        let mut next = Vec::new();
        for operations in &mut self.0 {
            next.push(operations.recv().await.unwrap());
        }
        next
    }

    /// Executes all further operations at once. A node may execute a withdrawal after the next question, which must
    /// therefore have another mark.
    fn execute(self) {
        for mut operations in self.0 {
            tokio::spawn(async move {
                let mut withdrawn = Vec::new();
                while let Some(sent) = operations.recv().await {
                    match sent.op.action {
                        Action::Withdraw { mark } => withdrawn.push(mark),
                        Action::Acquire { ask: Ask { mark: Some(mark), .. }, .. } => {
                            assert!(!withdrawn.contains(&mark), "a withdrawn mark is left again");
                        }
                        _ => {}
                    }
                    sent.execute();
                }
            });
        }
    }
}

/// The set comes to the queue of a key behind a reader of its process, which the mark of the set would keep out for a second.
#[tokio::test(start_paused = true)]
async fn the_mark_of_a_set_keeps_out_no_reader_of_its_process_that_is_before_it() {
    for count in [1, 3] {
        let (_, there, stores) = two_processes(count);
        let (nodes, operations): (Vec<_>, Vec<_>) = stores
            .into_iter()
            .map(|store| {
                let (mut node, operations) = DeferringNode::new();
                (node.store, node.capabilities.ordered) = (store, true);
                (node.capabilities.shared, node.capabilities.several_keys) = (true, true);
                (Arc::new(node) as Arc<dyn Node>, operations)
            })
            .unzip();
        let here = LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()));
        let mut deferred = Deferred(operations);
        let read = |locks: &LockManager| locks.lock("a").shared(true).expire(30 * SECOND);
        let holder = read(&there).try_acquire().await.unwrap();
        let set = wait_for_all(&here, ["a", "b"]);
        // The first question is without a mark.
        deferred.next().await.into_iter().for_each(Sent::execute);
        let refusals: Vec<_> =
            deferred.next().await.into_iter().map(Sent::execute_and_hold).collect();
        let reader = tokio::spawn(read(&here).wait_forever().acquire());
        let asked = deferred.next().await;
        for deliver in refusals {
            deliver();
        }
        settle().await;
        asked.into_iter().for_each(Sent::execute);
        deferred.execute();
        let reader = acquired(reader).await;
        settle().await;
        holder.release().await.unwrap();
        assert!(!set.is_finished());
        reader.release().await.unwrap();
        drop(acquired(set).await);
    }
}
