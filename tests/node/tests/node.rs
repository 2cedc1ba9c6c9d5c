//! How a manager uses a node that is written against the public trait: behaviours that the conformance tests do not cover.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use redlock_actor_node::{ActorNode, GuardedNode, UnorderedNode};
use redlock_core::node::Node;
use redlock_core::test_util::TestClock;
use redlock_core::{ConnectError, LockError, LockManager, LockManagerBuilder, NodeError, Vote};
use tokio::time::{Instant, sleep, timeout};

/// A lease longer than any test.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(60);
const KEY: &str = "order:42";

fn start(count: usize) -> Vec<ActorNode> {
    let nodes = start_unconnected(count);
    nodes.iter().for_each(ActorNode::bring_up);
    nodes
}

/// Nodes that have never been connected.
fn start_unconnected(count: usize) -> Vec<ActorNode> {
    redlock_logs::watch();
    (1..=count).map(|number| ActorNode::start_unconnected(&format!("actor-{number}"))).collect()
}

fn builder<N: Node + Clone>(nodes: &[N]) -> LockManagerBuilder {
    nodes.iter().cloned().fold(LockManager::builder(), LockManagerBuilder::node)
}

async fn connect<N: Node + Clone>(nodes: &[N]) -> LockManager {
    builder(nodes).connect().await.unwrap()
}

async fn acquires(locks: &LockManager) {
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

fn not_connected(reason: &str) -> Vote {
    Vote::Failed(NodeError::NotConnected(reason.into()))
}

/// Polls until `condition` holds. The store needs only a moment.
async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let holds = async {
        while !condition().await {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(SOON, holds).await.is_ok(), "never: {what}");
}

/// A task that waits is woken, and does not need to poll.
#[tokio::test]
async fn a_manager_is_available_while_a_quorum_of_its_nodes_is_up() {
    let memory = LockManager::in_memory();
    assert!(memory.is_available() && memory.wait_available().now_or_never().is_some());
    for (count, spare) in [(1, 0), (3, 1)] {
        let nodes = start(count);
        let locks = connect(&nodes).await;
        nodes[..spare].iter().for_each(|node| node.take_down("unplugged"));
        assert!(locks.is_available() && locks.wait_available().now_or_never().is_some());
        acquires(&locks).await;

        nodes[spare].take_down("unplugged");
        assert!(!locks.is_available());
        let mut available = pin!(locks.wait_available());
        assert!(available.as_mut().now_or_never().is_none());
        let waiting = locks.clone();
        let waiting = tokio::spawn(async move { waiting.wait_available().await });
        let error = locks.lock(KEY).try_acquire().await.unwrap_err();
        let LockError::Unavailable { votes, .. } = &error else { panic!("{error}") };
        assert_eq!(votes.iter().next(), Some(("actor-1", Some(&not_connected("unplugged")))));
        assert!(!waiting.is_finished());

        nodes[spare].bring_up();
        assert!(locks.is_available());
        timeout(SOON, available).await.unwrap();
        timeout(SOON, waiting).await.unwrap().unwrap();
        acquires(&locks).await;
    }
}

/// A guard that is dropped while its node is down is released when the node is back.
#[tokio::test]
async fn a_lock_is_released_when_its_node_is_back() {
    let nodes = start(1);
    let locks = connect(&nodes).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    nodes[0].take_down("unplugged");
    drop(guard);
    tokio::task::yield_now().await;
    assert_eq!(nodes[0].len().await, 1);
    nodes[0].bring_up();
    timeout(SOON, locks.shutdown()).await.unwrap();
    assert!(nodes[0].is_empty().await);
}

/// Time is paused, so the wait costs no real time.
#[tokio::test(start_paused = true)]
async fn connect_waits_until_a_quorum_of_nodes_is_up_and_a_quarter_of_its_timeout_for_the_others() {
    const TIMEOUT: Duration = Duration::from_secs(8);
    for (count, quorum, wait) in [(1, 1, Duration::ZERO), (3, 2, TIMEOUT / 4)] {
        let nodes = start_unconnected(count);
        let mut connecting = pin!(builder(&nodes).connect_timeout(TIMEOUT).connect());
        nodes[1..quorum].iter().for_each(ActorNode::bring_up);
        assert!(timeout(TIMEOUT / 8, connecting.as_mut()).await.is_err(), "no quorum is up");
        nodes[0].bring_up();
        let begun = Instant::now();
        let locks = connecting.await.unwrap();
        assert_eq!(begun.elapsed(), wait);
        assert!(locks.is_available());
        acquires(&locks).await;
    }
}

#[tokio::test]
async fn connect_fails_with_the_reasons_of_a_quorum_of_nodes_that_are_down() {
    let refused = not_connected("refused");
    for (count, expected) in
        [(1, vec![refused.clone()]), (3, vec![refused.clone(), refused, Vote::Agreed])]
    {
        let nodes = start_unconnected(count);
        let mut connecting = pin!(builder(&nodes).connect());
        assert!(connecting.as_mut().now_or_never().is_none());
        for (node, vote) in nodes.iter().zip(&expected) {
            if *vote == Vote::Agreed { node.bring_up() } else { node.take_down("refused") }
        }
        let error = timeout(SOON, connecting).await.unwrap().unwrap_err();
        let ConnectError::Unavailable { connected, quorum, votes, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*connected, *quorum), (count / 3, count / 2 + 1));
        let votes: Vec<_> = votes.iter().map(|(_, vote)| vote.cloned().unwrap()).collect();
        assert_eq!(votes, expected);
        assert!(error.to_string().contains("refused"), "{error}");
    }
}

/// Its vote would count twice.
#[tokio::test]
async fn connect_refuses_a_store_that_turns_out_to_be_that_of_another_node() {
    let nodes = start_unconnected(2);
    let [first, other] = &nodes[..] else { panic!("two nodes") };
    let twice = builder(&nodes).node(UnorderedNode::new(first));
    let mut connecting = pin!(twice.connect());
    assert!(connecting.as_mut().now_or_never().is_none());
    other.bring_up();
    assert!(connecting.as_mut().now_or_never().is_none());
    first.bring_up();
    let error = timeout(SOON, connecting).await.unwrap().unwrap_err();
    let ConnectError::SameServer { first, second, .. } = &error else { panic!("{error}") };
    assert_eq!([&**first, &**second], ["actor-1"; 2]);
}

/// A notified waiter needs only the time of its tasks. Paused time advances only while all tasks are idle, so
/// hardly any time passes.
#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_waiter_of_another_manager() {
    let nodes = start(1);
    let (one, other) = (connect(&nodes).await, connect(&nodes).await);
    let guard = one.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    eventually("the waiter has subscribed", async || nodes[0].subscribers_of(KEY).await == 1).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let next = timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert!(released.elapsed() < Duration::from_millis(5), "{:?}", released.elapsed());
    next.release().await.unwrap();
    eventually("no subscription is left", async || nodes[0].subscribers_of(KEY).await == 0).await;
}

/// Without a hint, the holder learns of its loss at its next renewal, after a third of its lease.
async fn is_hinted<N: Node + Clone>(nodes: &[N], stores: &[ActorNode]) {
    let (shop, ops) = (connect(nodes).await, connect(nodes).await);
    for breaks in [false, true] {
        let guard = shop.lock(KEY).expire(LONG).renew(true).try_acquire().await.unwrap();
        let lost = guard.lost();
        if let [first, _, _] = stores {
            // A minority gets the lock again, and hints go on.
            first.remove(KEY).await;
            let is_restored = async || first.time_to_live(KEY).await.is_some();
            eventually("the lock is set again", is_restored).await;
            assert!(guard.is_valid());
        }
        if breaks {
            for holder in ops.status(KEY).await.unwrap().holders() {
                ops.break_lock(KEY, holder).await.unwrap();
            }
        } else {
            join_all(stores.iter().map(|store| store.remove(KEY))).await;
        }
        assert!(timeout(SOON, lost).await.is_ok(), "no hint");
        assert!(!guard.is_valid());
        drop(guard);
        for store in stores {
            eventually("the watch ends", async || store.watches_of(KEY).await == 0).await;
        }
    }
}

#[tokio::test]
async fn a_holder_learns_by_a_hint_of_its_nodes_that_its_lock_is_gone() {
    for count in [1, 3] {
        let stores = start(count);
        is_hinted(&stores, &stores).await;
        let unordered: Vec<_> = stores.iter().map(UnorderedNode::new).collect();
        is_hinted(&unordered, &stores).await;
        let guarded: Vec<_> = stores.iter().cloned().map(GuardedNode::new).collect();
        is_hinted(&guarded, &stores).await;
    }
}

#[tokio::test]
async fn each_holder_has_a_greater_number() {
    let nodes = start(3);
    let managers = [connect(&nodes).await, connect(&nodes).await];
    let mut last = None;
    for turn in 0..10 {
        // Each turn uses another majority.
        let down = &nodes[turn % 3];
        down.take_down("unplugged");
        let request = managers[turn % 2].lock(KEY).expire(LONG).wait_time(LONG).fenced(true);
        let guard = request.acquire().await.unwrap();
        let number = guard.fencing_token().unwrap().number();
        assert!(last.is_none_or(|last| last < number), "{last:?} {number}");
        last = Some(number);
        guard.release().await.unwrap();
        down.bring_up();
    }
}

#[tokio::test]
async fn a_lock_that_is_released_early_stays_for_its_min_hold() {
    let nodes = start(1);
    let locks = connect(&nodes).await;
    let min_hold = LONG / 2;
    let request = locks.lock(KEY).expire(LONG).min_hold(min_hold);
    request.try_acquire().await.unwrap().release().await.unwrap();
    locks.shutdown().await;
    let left = nodes[0].time_to_live(KEY).await.unwrap();
    assert!(left <= min_hold && left + SOON > min_hold, "{left:?}");
}

/// Without the wrapper `Ordered`, which `LockManagerBuilder::node` adds, every second or third release overtakes
/// its acquisition (an abandoned attempt leaves nothing behind).
#[tokio::test]
async fn no_release_overtakes_its_acquisition_on_a_node_that_does_not_keep_the_order() {
    let nodes = start(1);
    let locks = connect(&[UnorderedNode::new(&nodes[0])]).await;
    for number in 0..100 {
        let acquisition = locks.lock(format!("order:{number}")).expire(LONG).try_acquire();
        // The acquisition is sent, and dropped before its reply.
        timeout(Duration::ZERO, acquisition).await.unwrap_err();
    }
    locks.shutdown().await;
    assert!(nodes[0].is_empty().await);
}

/// The node measures the time since the restart by the clock of its manager, which the test moves.
#[tokio::test]
async fn a_node_grants_no_lock_until_its_restarted_store_can_have_forgotten_none() {
    redlock_logs::watch();
    let clock = TestClock::new();
    let node = GuardedNode::new(ActorNode::start("actor"));
    let builder = builder(std::slice::from_ref(&node)).test_clock(&clock).restart_guard(LONG);
    let locks = builder.connect().await.unwrap();
    let second = Duration::from_secs(1);
    let refused = async |ago: Duration| {
        assert!(!locks.is_granting());
        let error = locks.lock(KEY).try_acquire().await.unwrap_err();
        let LockError::Unavailable { votes, .. } = &error else { panic!("{error}") };
        let Some(Vote::Failed(NodeError::Restarted { ago: Some(reported), votes_in, .. })) =
            votes.get("actor")
        else {
            panic!("{error}");
        };
        assert!((ago..ago + second).contains(reported), "{error}");
        assert_eq!(*reported + *votes_in, LONG);
    };
    refused(Duration::ZERO).await;
    let half = LONG / 2;
    clock.advance(half).await;
    refused(half).await;
    clock.advance(half).await;
    assert!(locks.is_granting());
    acquires(&locks).await;

    node.restart();
    refused(Duration::ZERO).await;
    clock.advance(LONG).await;
    acquires(&locks).await;
}
