//! Behaviours of a node written against the public trait that the conformance tests do not cover.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use redlock_actor_node::{ActorNode, UnorderedNode};
use redlock_core::LockManager;

/// A lease longer than any test.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";

/// Polls until `condition` holds. The store needs only a moment.
async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let holds = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(SOON, holds).await.is_ok(), "never: {what}");
}

/// A notified waiter needs only the time of its tasks. Paused time advances only while all tasks are idle, so
/// hardly any time passes.
#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_waiter_of_another_manager() {
    redlock_logs::watch();
    let node = ActorNode::start("actor");
    let one = LockManager::builder().node(node.clone()).connect().await.unwrap();
    let other = LockManager::builder().node(node.clone()).connect().await.unwrap();
    let guard = one.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    eventually("the waiter has subscribed", async || node.subscribers().await == 1).await;
    let released = tokio::time::Instant::now();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert!(released.elapsed() < Duration::from_millis(5), "{:?}", released.elapsed());
    next.release().await.unwrap();
    eventually("no subscription is left", async || node.subscribers().await == 0).await;
}

#[tokio::test]
async fn each_holder_has_a_greater_number() {
    redlock_logs::watch();
    let nodes = [1, 2, 3].map(|number| ActorNode::start(&format!("actor-{number}")));
    let builder = || nodes.iter().fold(LockManager::builder(), |b, node| b.node(node.clone()));
    let managers = [builder().connect().await.unwrap(), builder().connect().await.unwrap()];
    let mut last = None;
    for turn in 0..10 {
        // Each turn uses another majority.
        let down = &nodes[turn % 3];
        down.take_down("unplugged");
        let request = managers[turn % 2].lock(KEY).expire(LONG).wait_time(LONG).fenced();
        let guard = request.acquire().await.unwrap();
        let number = guard.fencing_token().number();
        assert!(last.is_none_or(|last| last < number), "{last:?} {number}");
        last = Some(number);
        guard.release().await.unwrap();
        down.bring_up();
    }
}

#[tokio::test]
async fn a_lock_that_is_released_early_stays_for_its_min_hold() {
    redlock_logs::watch();
    let node = ActorNode::start("actor");
    let locks = LockManager::builder().node(node.clone()).connect().await.unwrap();
    let min_hold = LONG / 2;
    let request = locks.lock(KEY).expire(LONG).min_hold(min_hold);
    request.try_acquire().await.unwrap().release().await.unwrap();
    locks.shutdown().await;
    let left = node.time_to_live(KEY).await.unwrap();
    assert!(left <= min_hold && left + SOON > min_hold, "{left:?}");
}

/// Without the wrapper `Ordered`, which `LockManagerBuilder::node` adds, about every third release overtakes
/// its acquisition (an abandoned attempt leaves nothing behind).
#[tokio::test]
async fn no_release_overtakes_its_acquisition_on_a_node_that_does_not_keep_the_order() {
    redlock_logs::watch();
    let node = ActorNode::start("actor");
    let unordered = UnorderedNode::new(&node);
    let locks = LockManager::builder().node(unordered).connect().await.unwrap();
    for number in 0..100 {
        let acquisition = locks.lock(format!("order:{number}")).expire(LONG).try_acquire();
        // The acquisition is sent, and dropped before its reply.
        tokio::time::timeout(Duration::ZERO, acquisition).await.unwrap_err();
    }
    locks.shutdown().await;
    assert!(node.is_empty().await);
}
