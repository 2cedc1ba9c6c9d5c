//! How a manager uses the status of its nodes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use redlock_actor_node::ActorNode;
use redlock_core::{ConnectError, LockError, LockManager, LockManagerBuilder, NodeError, Vote};

const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";

fn start(count: usize) -> Vec<ActorNode> {
    redlock_logs::watch();
    (1..=count).map(|number| ActorNode::start(&format!("actor-{number}"))).collect()
}

/// Nodes that have never been connected.
fn start_unconnected(count: usize) -> Vec<ActorNode> {
    redlock_logs::watch();
    (1..=count).map(|number| ActorNode::start_unconnected(&format!("actor-{number}"))).collect()
}

fn builder(nodes: &[ActorNode]) -> LockManagerBuilder {
    nodes.iter().cloned().fold(LockManager::builder(), LockManagerBuilder::node)
}

fn not_connected(reason: &str) -> Vote {
    Vote::Failed(NodeError::NotConnected(reason.into()))
}

#[tokio::test]
async fn memory_is_available_at_once() {
    let locks = LockManager::in_memory();
    assert!(locks.is_available());
    assert!(locks.wait_available().now_or_never().is_some());
}

#[tokio::test]
async fn a_manager_is_available_while_its_only_node_is_up() {
    let nodes = start(1);
    let locks = builder(&nodes).connect().await.unwrap();
    assert!(locks.is_available());

    nodes[0].take_down("unplugged");
    assert!(!locks.is_available());
    let mut available = pin!(locks.wait_available());
    assert!(available.as_mut().now_or_never().is_none());
    let error = locks.lock(KEY).try_acquire().await.unwrap_err();
    let LockError::Unavailable { votes, .. } = &error else { panic!("{error}") };
    assert_eq!(votes.iter().next(), Some(("actor-1", Some(&not_connected("unplugged")))));

    nodes[0].bring_up();
    assert!(locks.is_available());
    tokio::time::timeout(SOON, available).await.unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_manager_is_available_while_a_quorum_of_its_nodes_is_up() {
    let nodes = start(3);
    let locks = builder(&nodes).connect().await.unwrap();
    nodes[0].take_down("unplugged");
    assert!(locks.is_available());
    assert!(locks.wait_available().now_or_never().is_some());
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();

    nodes[2].take_down("unplugged");
    assert!(!locks.is_available());
    let mut available = pin!(locks.wait_available());
    assert!(available.as_mut().now_or_never().is_none());
    locks.lock(KEY).try_acquire().await.unwrap_err();

    nodes[0].bring_up();
    assert!(locks.is_available());
    tokio::time::timeout(SOON, available).await.unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

/// The waiting task is woken, and does not need to poll.
#[tokio::test]
async fn a_node_that_comes_back_wakes_the_waiting_task() {
    let nodes = start(1);
    let locks = builder(&nodes).connect().await.unwrap();
    nodes[0].take_down("unplugged");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.wait_available().await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    nodes[0].bring_up();
    tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
}

/// A guard that is dropped while its node is down is released when the node is back.
#[tokio::test]
async fn a_lock_is_released_when_its_node_is_back() {
    let nodes = start(1);
    let locks = builder(&nodes).connect().await.unwrap();
    let guard = locks.lock(KEY).expire(Duration::from_secs(300)).try_acquire().await.unwrap();
    nodes[0].take_down("unplugged");
    drop(guard);
    tokio::task::yield_now().await;
    assert_eq!(nodes[0].len().await, 1);
    nodes[0].bring_up();
    tokio::time::timeout(SOON, locks.shutdown()).await.unwrap();
    assert!(nodes[0].is_empty().await);
}

#[tokio::test]
async fn connect_waits_for_a_node_that_is_connecting() {
    let nodes = start_unconnected(1);
    let mut connecting = pin!(builder(&nodes).connect());
    assert!(connecting.as_mut().now_or_never().is_none());
    nodes[0].bring_up();
    let locks = tokio::time::timeout(SOON, connecting).await.unwrap().unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

/// Time is paused, so the wait costs no real time.
#[tokio::test(start_paused = true)]
async fn connect_waits_until_a_quorum_of_nodes_is_up() {
    let nodes = start_unconnected(3);
    let mut connecting = pin!(builder(&nodes).connect());
    nodes[2].bring_up();
    let early = tokio::time::timeout(Duration::from_secs(1), connecting.as_mut()).await;
    assert!(early.is_err(), "one node is no quorum");
    nodes[0].bring_up();
    // `connect` gives the third node a moment more, in vain.
    let locks = tokio::time::timeout(SOON, connecting).await.unwrap().unwrap();
    assert!(locks.is_available());
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn connect_fails_with_the_reason_of_a_node_that_is_down() {
    let nodes = start_unconnected(1);
    let mut connecting = pin!(builder(&nodes).connect());
    assert!(connecting.as_mut().now_or_never().is_none());
    nodes[0].take_down("refused");
    let error = tokio::time::timeout(SOON, connecting).await.unwrap().unwrap_err();
    let ConnectError::Unavailable { connected: 0, quorum: 1, votes, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(votes.iter().next(), Some(("actor-1", Some(&not_connected("refused")))));
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn connect_fails_when_a_quorum_of_nodes_is_down() {
    let nodes = start(3);
    nodes[0].take_down("refused");
    nodes[1].take_down("unplugged");
    let error = builder(&nodes).connect().await.unwrap_err();
    let ConnectError::Unavailable { connected: 1, quorum: 2, votes, .. } = &error else {
        panic!("{error}");
    };
    let votes: Vec<_> = votes.iter().map(|(_, vote)| vote.cloned().unwrap()).collect();
    assert_eq!(votes, [not_connected("refused"), not_connected("unplugged"), Vote::Granted]);
}
