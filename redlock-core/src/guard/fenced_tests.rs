use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::fake::RuntimeClock;
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode, Operation};
use crate::{Dialect, LockError, LockManager, LockManagerBuilder, MemoryNode, scope};

const WAIT: Duration = Duration::from_secs(60);

async fn over(nodes: &[MemoryNode]) -> LockManager {
    let nodes = nodes.iter().fold(LockManager::builder(), LockManagerBuilder::memory_node);
    nodes.connect().await.unwrap()
}

/// Returns a manager on nodes that the test controls, and the nodes.
fn over_fakes(count: usize) -> (LockManager, Vec<Arc<FakeNode>>) {
    let fakes: Vec<_> = (0..count).map(|number| FakeNode::start(&number.to_string())).collect();
    let nodes = fakes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
    (LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new())), fakes)
}

fn confirmations(node: &FakeNode) -> usize {
    node.log().iter().filter(|operation| matches!(operation, Operation::Confirm(..))).count()
}

/// Two processes have ten callers each. Each turn is an acquisition or a hand-over.
#[tokio::test(start_paused = true)]
async fn every_turn_has_a_greater_number_than_the_one_before() {
    for (nodes, dialect) in [(1, Dialect::Plain), (3, Dialect::Plain), (1, Dialect::Redisson)] {
        let nodes: Vec<_> = (0..nodes).map(|_| MemoryNode::new()).collect();
        let processes = [over(&nodes).await, over(&nodes).await];
        let turns = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let (locks, turns) = (processes[number % 2].clone(), Arc::clone(&turns));
                tokio::spawn(async move {
                    for _ in 0..10 {
                        let request = locks.lock("a").dialect(dialect).wait_time(WAIT);
                        let guard = request.fenced(true).acquire().await.unwrap();
                        turns.lock().push(guard.fencing_token().unwrap());
                        tokio::task::yield_now().await;
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let turns = turns.lock();
        assert_eq!(turns.len(), 200);
        assert!(turns.is_sorted_by(|one, next| one.number() < next.number()), "{turns:?}");
        assert!(nodes.iter().all(MemoryNode::is_empty));
    }
}

/// Each hand-over has its own number. The nodes confirm the number before the new holder gets it.
#[tokio::test(start_paused = true)]
async fn a_hand_over_is_numbered_and_confirmed() {
    // One node alone has given the greatest number, so the acquisition is not confirmed.
    for (count, confirmed) in [(1, 1), (3, 2)] {
        let (locks, nodes) = over_fakes(count);
        let fenced = || locks.lock("a").wait_time(WAIT).fenced(true).acquire();
        let first = fenced().await.unwrap();
        let token = first.fencing_token().unwrap();
        let acquired = nodes[0].log().len();
        let next = async { fenced().await.unwrap() };
        let (next, released) = tokio::join!(next, first.release());
        released.unwrap();
        let next = next.fencing_token().unwrap();
        assert!(next > token);
        assert_eq!(next.holder(), token.holder(), "the lock was handed over");
        assert_eq!(nodes[0].log().len(), acquired + 1);
        assert_eq!(confirmations(&nodes[0]), confirmed);
    }
}

/// The waiter goes on waiting for the rest of its wait time. The lost lock is not handed to the
/// next waiter, either.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_in_a_hand_over_is_acquired_anew() {
    let (locks, nodes) = over_fakes(3);
    let acquire = || locks.lock("a").wait_time(WAIT).fenced(true).acquire();
    let first = acquire().await.unwrap();
    let token = first.fencing_token().unwrap();
    let next = || async {
        let guard = acquire().await.unwrap();
        assert!(guard.is_valid() && guard.fencing_token().unwrap() > token);
        assert_ne!(guard.fencing_token().unwrap().holder(), token.holder());
        guard.release().await.unwrap();
    };
    let release = async {
        for node in &nodes {
            node.forget();
        }
        first.release().await
    };
    let ((), (), released) = tokio::join!(next(), next(), release);
    assert!(released.is_ok(), "the lock was handed over");
    // The confirmations of the first holder, of the failed hand-over, of the second holder, and of
    // the third.
    assert_eq!(confirmations(&nodes[0]), 4);
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_that_no_quorum_confirms_fails() {
    let (locks, nodes) = over_fakes(3);
    let first = locks.lock("a").wait_time(WAIT).fenced(true).acquire().await.unwrap();
    let next = async { locks.lock("a").wait_time(WAIT).fenced(true).acquire().await };
    let release = async {
        for node in &nodes {
            node.set(FakeMode::Frozen);
        }
        first.release().await
    };
    let (next, _) = tokio::join!(next, release);
    assert!(matches!(next, Err(LockError::Unavailable { .. })), "{next:?}");
    for node in &nodes {
        node.set(FakeMode::Up(Duration::ZERO));
    }
    while nodes.iter().any(|node| node.is_held()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(locks.queues().is_empty());
}

/// Both waiters keep their places in the queue, because the outage is short.
#[tokio::test(start_paused = true)]
async fn a_hand_over_that_is_not_confirmed_in_a_short_outage_keeps_its_place() {
    for mode in [FakeMode::Frozen, FakeMode::Down] {
        let (locks, nodes) = over_fakes(3);
        let acquire = || locks.lock("a").wait_time(WAIT).fenced(true).acquire();
        let first = acquire().await.unwrap();
        let token = first.fencing_token().unwrap();
        let order = parking_lot::Mutex::new(Vec::new());
        let turn = async |number| {
            let guard = acquire().await.unwrap();
            assert!(guard.is_valid() && guard.fencing_token().unwrap() > token);
            order.lock().push(number);
            guard.release().await.unwrap();
        };
        let outage = async {
            for node in &nodes {
                node.set(mode);
            }
            first.release().await.unwrap();
            tokio::time::sleep(Duration::from_millis(1500)).await;
            for node in &nodes {
                node.set(FakeMode::Up(Duration::ZERO));
            }
        };
        tokio::join!(turn(2), turn(3), outage);
        assert_eq!(*order.lock(), [2, 3], "{mode:?}");
        assert!(locks.queues().is_empty());
    }
}

/// A lock without a number gives the next holder no number to continue from.
#[tokio::test(start_paused = true)]
async fn a_lock_without_a_number_is_not_handed_to_a_waiter_that_needs_one() {
    let (locks, nodes) = over_fakes(1);
    let first = locks.lock("a").wait_time(WAIT).acquire().await.unwrap();
    let next = async { locks.lock("a").wait_time(WAIT).fenced(true).acquire().await.unwrap() };
    let (next, released) = tokio::join!(next, first.release());
    released.unwrap();
    assert_eq!(nodes[0].releases(), 1);
    // A fenced lock is handed over to a waiter that does not need a number.
    let (plain, released) = tokio::join!(locks.lock("a").wait_time(WAIT).acquire(), next.release());
    released.unwrap();
    assert_eq!(nodes[0].releases(), 1);
    drop(plain.unwrap());
}

#[tokio::test]
async fn an_extension_and_a_joined_lock_keep_the_number() {
    let locks = over(&[MemoryNode::new()]).await;
    scope(async {
        let guard = locks.lock("a").fenced(true).try_acquire().await.unwrap();
        let token = guard.fencing_token().unwrap();
        guard.extend(WAIT).await.unwrap();
        let joined = locks.lock("a").reentrant(true).fenced(true).try_acquire().await.unwrap();
        assert_eq!(joined.fencing_token().unwrap(), token);
        drop(guard);
        assert_eq!(joined.fencing_token().unwrap(), token);
        joined.release().await.unwrap();
        assert!(
            locks.lock("a").fenced(true).try_acquire().await.unwrap().fencing_token().unwrap()
                > token
        );
    })
    .await;
}

/// The library cannot make up a number for a lock that was acquired without one.
#[tokio::test]
async fn a_lock_without_a_number_is_not_shared_as_a_fenced_one() {
    let node = MemoryNode::new();
    let locks = over(std::slice::from_ref(&node)).await;
    scope(async {
        let guard = locks.lock("a").try_acquire().await.unwrap();
        let refused = locks.lock("a").reentrant(true).fenced(true).try_acquire().await;
        assert!(matches!(refused, Err(LockError::AlreadyHeld { .. })), "{refused:?}");
        assert!(guard.is_valid() && node.len() == 1);
        guard.release().await.unwrap();
        assert!(node.is_empty());
    })
    .await;
}

/// After a restart the counter is gone, but the number still grows with the time.
#[tokio::test]
async fn the_number_is_not_below_the_time() {
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let guard = LockManager::in_memory().lock("a").fenced(true).try_acquire().await.unwrap();
    assert!(
        i128::from(guard.fencing_token().unwrap().number())
            > i128::try_from(before.as_micros()).unwrap()
    );
}
