//! Custom nodes that a service brings along, as a manager uses them.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::LockManager;
use crate::error::{ConnectError, HoldError, LockError, NodeError, Vote};
use crate::lock::Dialect;
use crate::node::deferring::DeferringNode;
use crate::node::{Action, Fencing, Node, NodeStatus};
use crate::request::scope::scope;
use crate::store::memory::MemoryNode;

const SOON: Duration = Duration::from_secs(120);

/// If the release did not wait, the node could execute it first, and the lock would stay for its
/// lease.
#[tokio::test]
async fn a_release_waits_for_the_acquisition_on_a_node_that_does_not_keep_the_order() {
    let (node, mut sent) = DeferringNode::new();
    let store = node.store.clone();
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    let mut acquisition = Box::pin(locks.lock("order:42").try_acquire());
    assert!(acquisition.as_mut().now_or_never().is_none());
    let acquire = sent.try_recv().unwrap();
    drop(acquisition);
    sent.try_recv().unwrap_err();

    acquire.execute();
    assert_eq!(store.len(), 1);
    let release = tokio::time::timeout(SOON, sent.recv()).await.unwrap().unwrap();
    assert!(release.is_release());
    release.execute();
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_decides_whether_it_is_up_does_not_delay_a_start_forever() {
    let (node, _sent) = DeferringNode::new();
    node.status.send(NodeStatus::Connecting);
    let connect = LockManager::builder().node(node).connect();
    let error = tokio::time::timeout(SOON, connect).await.unwrap().unwrap_err();
    let ConnectError::Unavailable { connected: 0, votes, .. } = &error else { panic!("{error}") };
    let waited = Duration::from_secs(2);
    let vote = votes.iter().next().unwrap().1;
    assert_eq!(vote, Some(&Vote::Failed(NodeError::NoReply(waited))));
}

/// A node that tries again reports that it is connecting, until it gives up.
#[tokio::test(start_paused = true)]
async fn connect_does_not_wait_for_a_node_after_its_first_down() {
    let (node, _sent) = DeferringNode::new();
    node.status.send(NodeStatus::Connecting);
    let status = node.status.clone();
    let connect = LockManager::builder().node(node).connect();
    let recovers = async {
        sleep(Duration::from_millis(100)).await;
        status.send(NodeStatus::Down(NodeError::NotConnected("refused".into())));
        sleep(Duration::from_millis(100)).await;
        status.send(NodeStatus::Up);
    };
    let (connected, ()) = tokio::join!(connect, recovers);
    let error = connected.unwrap_err();
    assert!(matches!(error, ConnectError::Unavailable { connected: 0, .. }), "{error}");
}

/// The restart guard keeps nodes from granting locks, although they are up.
#[tokio::test]
async fn a_manager_is_granting_while_a_quorum_of_its_nodes_is() {
    for (granting, up, expected) in
        [(3, 3, true), (2, 3, true), (1, 3, false), (3, 2, true), (2, 1, false)]
    {
        let mut builder = LockManager::builder();
        let mut statuses = Vec::new();
        for index in 0..3 {
            let (mut node, _) = DeferringNode::new();
            node.is_granting = index < granting;
            statuses.push(node.status.clone());
            builder = builder.node(node);
        }
        let locks = builder.connect().await.unwrap();
        let down = NodeStatus::Down(NodeError::NotConnected("refused".into()));
        statuses[..3 - up].iter().for_each(|status| status.send(down.clone()));
        assert_eq!(locks.is_granting(), expected, "{granting} grant, {up} are up");
        assert_eq!(locks.is_available(), up >= 2);
        locks.shutdown().await;
        assert!(!locks.is_granting());
    }
}

/// Its vote would count twice.
#[tokio::test]
async fn a_store_that_is_added_twice_is_noticed_by_its_id() {
    let (store, other) = (MemoryNode::new(), MemoryNode::new());
    let over_store = || {
        let mut node = DeferringNode::new().0;
        node.store = store.clone();
        node
    };
    let builder = || LockManager::builder().memory_node(&other);
    for twice in [
        builder().memory_node(&store).memory_node(&store),
        builder().node(over_store()).node(over_store()),
        builder().node(over_store()).memory_node(&store),
    ] {
        let error = twice.connect().await.unwrap_err();
        let ConnectError::SameServer { first, second } = &error else { panic!("{error:?}") };
        assert_eq!([first, second], [store.name(); 2]);
    }
    builder().node(over_store()).connect().await.unwrap();
}

#[tokio::test]
async fn an_ordered_node_is_sent_operations_without_delay() {
    let (mut node, mut sent) = DeferringNode::new();
    node.capabilities.ordered = true;
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    let mut acquisition = Box::pin(locks.lock("order:42").try_acquire());
    assert!(acquisition.as_mut().now_or_never().is_none());
    drop(acquisition);
    assert!(!sent.try_recv().unwrap().is_release());
    assert!(sent.try_recv().unwrap().is_release());
}

#[tokio::test]
async fn fenced_locks_need_nodes_that_can_number_holders() {
    let (mut node, mut sent) = DeferringNode::new();
    node.capabilities.fencing = Fencing::None;
    let name = node.name().to_string();
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    let error = locks.lock("order:42").fenced(true).try_acquire().await.unwrap_err();
    let LockError::InvalidOption(invalid) = &error else { panic!("{error:?}") };
    assert_eq!(invalid.option(), "fenced");
    assert!(error.to_string().contains(&name), "{error}");
    sent.try_recv().unwrap_err();
}

/// The counter of such a node cannot be raised to the number that another node has given.
#[tokio::test]
async fn a_node_that_gives_numbers_alone_gives_none_beside_other_nodes() {
    let node = || {
        let (mut node, sent) = DeferringNode::new();
        node.capabilities.fencing = Fencing::Alone;
        (node, sent)
    };
    let (first, mut sent) = node();
    let name = first.name().to_string();
    let locks = LockManager::builder().node(first).node(MemoryNode::new()).connect().await.unwrap();
    let error = locks.lock("order:42").fenced(true).try_acquire().await.unwrap_err();
    let LockError::InvalidOption(invalid) = &error else { panic!("{error:?}") };
    assert_eq!(invalid.option(), "fenced");
    assert!(
        error.to_string().ends_with(&format!(
            "unset: the node {name} does not support fencing beside other nodes"
        ))
    );
    sent.try_recv().unwrap_err();

    let (alone, mut sent) = node();
    let locks = LockManager::builder().node(alone).connect().await.unwrap();
    let fenced = || locks.lock("order:42").fenced(true).wait_forever().acquire();
    let acquisition = tokio::spawn(fenced());
    tokio::time::timeout(SOON, sent.recv()).await.unwrap().unwrap().execute();
    let guard = acquisition.await.unwrap().unwrap();
    // The next number also comes from the node, and not from a hand-over.
    let mut waiter = pin!(fenced());
    assert!(waiter.as_mut().now_or_never().is_none());
    let first = guard.fencing_token().unwrap();
    drop(guard);
    let execute = async {
        let release = sent.recv().await.unwrap();
        assert!(release.is_release());
        release.execute();
        let acquire = sent.recv().await.unwrap();
        assert!(matches!(acquire.op.action, Action::Acquire { .. }), "{acquire:?}");
        acquire.execute();
    };
    let next = async { tokio::join!(waiter, execute).0 };
    let next = tokio::time::timeout(SOON, next).await.unwrap().unwrap();
    assert!(next.fencing_token().unwrap() > first);
}

#[tokio::test]
async fn a_lease_that_a_node_does_not_grant_is_an_invalid_option() {
    let [short, long, longer] = [1, 5, 6].map(Duration::from_secs);
    let (mut node, mut sent) = DeferringNode::new();
    node.capabilities.shortest_lease = short;
    node.capabilities.longest_lease = long;
    let locks = LockManager::builder().node(node).expire(long).connect().await.unwrap();
    let too_short = Duration::from_millis(999);
    for (expire, expected) in [
        (longer, "expire is 6s, but must be from 1s to 5s, the leases that all nodes grant"),
        (too_short, "expire is 999ms, but must be from 1s to 5s, the leases that all nodes grant"),
    ] {
        let error = locks.lock("order:42").expire(expire).try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidOption(_)), "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
    sent.try_recv().unwrap_err();

    let acquisition = tokio::spawn(locks.lock("order:42").expire(short).try_acquire());
    tokio::time::timeout(SOON, sent.recv()).await.unwrap().unwrap().execute();
    let guard = acquisition.await.unwrap().unwrap();
    let error = guard.extend(longer).await.unwrap_err();
    assert!(matches!(error, HoldError::InvalidOption(_)), "{error:?}");
    sent.try_recv().unwrap_err();
}

/// Without an error, a restarted node would vote at once, and nobody would know.
#[tokio::test]
async fn a_restart_guard_needs_nodes_that_support_it_or_keep_their_locks() {
    let guard = Duration::from_secs(60);
    let connect = |restart_guard, durable| {
        let mut node = DeferringNode::new().0;
        (node.capabilities.restart_guard, node.capabilities.durable) = (restart_guard, durable);
        let name = node.name().to_string();
        let builder = LockManager::builder().memory_node(&MemoryNode::new()).node(node);
        async move { (name, builder.restart_guard(guard).connect().await) }
    };
    let (name, connected) = connect(false, false).await;
    let error = connected.unwrap_err();
    let ConnectError::InvalidOption(invalid) = &error else { panic!("{error:?}") };
    assert_eq!(invalid.option(), "restart_guard");
    let expected = format!(
        "restart_guard is 60s, but must be unset: the node {name} does not support the restart guard"
    );
    assert_eq!(error.to_string(), expected);
    for (restart_guard, durable) in [(true, false), (false, true)] {
        connect(restart_guard, durable).await.1.unwrap();
    }
}

/// Without an error, the margin would have no effect, and nobody would know.
#[tokio::test]
async fn a_failover_margin_needs_a_node_that_supports_the_restart_guard() {
    let guard = Duration::from_secs(60);
    let connect = async |node| {
        let builder = LockManager::builder().memory_node(&MemoryNode::new()).node(node);
        builder.restart_guard(guard).failover_margin(guard).connect().await
    };
    let mut node = DeferringNode::new().0;
    node.capabilities.durable = true;
    let error = connect(node).await.unwrap_err();
    let ConnectError::InvalidOption(invalid) = &error else { panic!("{error:?}") };
    assert_eq!(invalid.option(), "failover_margin");
    let message = error.to_string();
    assert!(message.starts_with("failover_margin is 60s, but must be unset: the node memory-"));
    assert!(message.ends_with(" does not support the restart guard"), "{message}");
    let mut node = DeferringNode::new().0;
    node.capabilities.restart_guard = true;
    connect(node).await.unwrap();
}

/// Otherwise every node would have to read the dialect, and a caller of Redisson would not exclude the holder.
#[tokio::test]
async fn a_dialect_needs_nodes_that_have_it() {
    let node = || {
        let (node, sent) = DeferringNode::new();
        let message = format!(
            "dialect is redisson, but must be plain: the node {} does not support this dialect",
            node.name()
        );
        let builder = LockManager::builder().memory_node(&MemoryNode::new());
        (builder.node(node), sent, message)
    };
    let (builder, _, message) = node();
    let error = builder.dialect(Dialect::Redisson).connect().await.unwrap_err();
    let ConnectError::InvalidOption(invalid) = &error else { panic!("{error:?}") };
    assert_eq!((invalid.option(), error.to_string()), ("dialect", message));

    let (builder, mut sent, message) = node();
    let locks = builder.connect().await.unwrap();
    let error = locks.lock("order:42").dialect(Dialect::Redisson).try_acquire().await.unwrap_err();
    let LockError::InvalidOption(invalid) = &error else { panic!("{error:?}") };
    assert_eq!((invalid.option(), error.to_string()), ("dialect", message));
    sent.try_recv().unwrap_err();

    let mut node = DeferringNode::new().0;
    node.capabilities.redisson = true;
    LockManager::builder().node(node).dialect(Dialect::Redisson).connect().await.unwrap();
}

/// A manager grants the leases that all of its nodes grant.
#[tokio::test]
async fn connect_refuses_a_default_lease_that_a_node_does_not_grant() {
    let [short, long, longer] = [1, 5, 6].map(Duration::from_secs);
    let builder = || {
        let nodes = [(); 3].map(|()| DeferringNode::new().0);
        let [mut first, mut second, third] = nodes;
        first.capabilities.shortest_lease = short;
        second.capabilities.longest_lease = long;
        LockManager::builder().node(first).node(second).node(third)
    };
    for expire in [short / 2, longer] {
        let error = builder().expire(expire).connect().await.unwrap_err();
        assert!(matches!(error, ConnectError::InvalidOption(_)), "{error:?}");
        assert!(error.to_string().contains("from 1s to 5s"), "{error}");
    }
    for expire in [short, long] {
        builder().expire(expire).connect().await.unwrap();
    }
}

/// A manager without options works with every node.
#[tokio::test]
async fn the_default_lease_is_at_most_the_longest_that_all_nodes_grant() {
    let [minute, long, default] = [60, 5, 30].map(Duration::from_secs);
    for (longest, expected) in [(long, long), (minute, default)] {
        let nodes = [(); 3].map(|()| DeferringNode::new().0);
        let builder = nodes.into_iter().enumerate().fold(
            LockManager::builder(),
            |builder, (index, mut node)| {
                node.capabilities.longest_lease = if index == 1 { longest } else { minute };
                builder.node(node)
            },
        );
        let locks = builder.connect().await.unwrap();
        assert_eq!(locks.context.defaults.expire, expected);
    }
}

/// Otherwise the node could turn the lock into a shared one after its release.
#[tokio::test]
async fn a_release_waits_for_a_downgrade_that_was_dropped() {
    let (mut node, mut sent) = DeferringNode::new();
    node.capabilities.shared = true;
    let store = node.store.clone();
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    let acquisition = tokio::spawn(locks.lock("order:42").try_acquire());
    tokio::time::timeout(SOON, sent.recv()).await.unwrap().unwrap().execute();
    let guard = acquisition.await.unwrap().unwrap();
    assert!(guard.downgrade().now_or_never().is_none());
    drop(guard);
    let downgrade = sent.try_recv().unwrap();
    sent.try_recv().unwrap_err();
    downgrade.execute();
    let release = tokio::time::timeout(SOON, sent.recv()).await.unwrap().unwrap();
    assert!(release.is_release());
    release.execute();
    assert!(store.is_empty());
}

/// If the release did not wait, the node could execute the extension afterwards, and prolong a lock
/// that stays for its `min_hold`.
#[tokio::test]
async fn a_release_waits_for_an_extension_that_was_dropped() {
    let [min_hold, long] = [60, 300].map(Duration::from_secs);
    let (node, mut sent) = DeferringNode::new();
    let store = node.store.clone();
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    let request = locks.lock("order:42").expire(min_hold).min_hold(min_hold);
    let acquisition = tokio::spawn(request.try_acquire());
    tokio::time::timeout(SOON, sent.recv()).await.unwrap().unwrap().execute();
    let guard = acquisition.await.unwrap().unwrap();

    assert!(guard.extend(long).now_or_never().is_none());
    drop(guard);
    let extend = sent.try_recv().unwrap();
    sent.try_recv().unwrap_err();
    extend.execute();
    let release = tokio::time::timeout(SOON, sent.recv()).await.unwrap().unwrap();
    assert!(release.is_release());
    release.execute();
    assert!(store.time_to_live("order:42").unwrap() <= min_hold);
}

/// The page about production warns of it: a request that locks one key by two managers waits for itself.
#[tokio::test(start_paused = true)]
async fn a_scope_does_not_know_the_locks_of_another_manager() {
    let node = MemoryNode::new();
    let manager = async || LockManager::builder().memory_node(&node).connect().await.unwrap();
    let (one, other) = (manager().await, manager().await);
    scope(async {
        let guard = one.lock("a").try_acquire().await.unwrap();
        let again = one.lock("a").wait_forever().acquire().await.unwrap_err();
        assert!(matches!(again, LockError::AlreadyHeld { .. }), "{again:?}");
        let (begun, wait_time) = (Instant::now(), Duration::from_secs(3));
        let refused = other.lock("a").wait_time(wait_time).acquire().await.unwrap_err();
        assert!(refused.is_contended() && begun.elapsed() >= wait_time, "{refused:?}");
        guard.release().await.unwrap();
    })
    .await;
}

/// A node finds its locks by their names, and a manager by their keys.
#[tokio::test(start_paused = true)]
async fn managers_meet_on_a_node_if_the_names_of_their_locks_are_equal() {
    let node = MemoryNode::new();
    let manager = async |prefix: &str| {
        LockManager::builder().prefix(prefix).memory_node(&node).connect().await.unwrap()
    };
    let (shop, bank, bare) = (manager("shop:").await, manager("bank:").await, manager("").await);
    let one = shop.lock("a").try_acquire().await.unwrap();
    let other = bank.lock("a").try_acquire().await.unwrap();
    let refused = bare.lock("shop:a").try_acquire().await.unwrap_err();
    assert!(refused.is_contended() && refused.key().unwrap().as_str() == "shop:a", "{refused:?}");
    let set = bare.lock_all(["b", "shop:a"]).try_acquire().await.unwrap_err();
    assert_eq!(set.key().unwrap().as_str(), "shop:a");
    let both = bank.lock_all(["b", "c"]).try_acquire().await.unwrap();
    shop.lock_all(["b", "c"]).try_acquire().await.unwrap().release().await.unwrap();

    // The key of another manager's guard has no prefix here.
    let bare_guard = bare.lock(&one.keys()[0]).try_acquire().await.unwrap();
    assert!(node.time_to_live("a").is_some() && bare_guard.keys() == one.keys());

    let waiting = |locks: &LockManager, key: &str| {
        let waiter = locks.lock(key).wait_forever().acquire();
        tokio::spawn(async move { waiter.await.map(|guard| (guard, Instant::now())) })
    };
    let waiter = waiting(&bare, "shop:a");
    sleep(Duration::from_millis(100)).await;
    for guard in [other, both, bare_guard] {
        guard.release().await.unwrap();
    }
    sleep(Duration::from_millis(100)).await;
    assert!(!waiter.is_finished() && node.time_to_live("shop:a").is_some());
    let released = Instant::now();
    one.release().await.unwrap();
    let (guard, acquired) = waiter.await.unwrap().unwrap();
    assert_eq!(acquired, released, "the waiter was not notified");
    guard.release().await.unwrap();
    assert!(node.is_empty() && node.subscriptions() == 0);
}

#[tokio::test(start_paused = true)]
async fn managers_with_different_prefixes_have_different_fair_queues() {
    let node = MemoryNode::new();
    let manager = async |prefix: &str| {
        LockManager::builder().prefix(prefix).memory_node(&node).connect().await.unwrap()
    };
    let (shop, bank) = (manager("shop:").await, manager("bank:").await);
    let _held = shop.lock("a").try_acquire().await.unwrap();
    let waiter = tokio::spawn(shop.lock("a").fair(true).wait_forever().acquire());
    sleep(Duration::from_millis(100)).await;
    let refused = shop.lock("a").fair(true).try_acquire().await.unwrap_err();
    assert!(refused.is_contended(), "{refused:?}");
    drop(bank.lock("a").fair(true).try_acquire().await.unwrap());
    waiter.abort();
}

/// The locks of such a store end together with the process that holds them.
#[tokio::test]
async fn a_lock_stays_after_its_release_only_on_nodes_that_have_such_locks() {
    let (mut node, mut sent) = DeferringNode::new();
    node.capabilities.min_hold = false;
    let name = node.name().to_string();
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    let request = || locks.lock("order:42");
    let second = Duration::from_secs(1);
    for (request, value) in
        [(request().min_hold(second), "min_hold is 1s"), (request().keep(true), "keep is true")]
    {
        let error = request.try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidOption(_)), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!(
                "{value}, but must be unset: the node {name} does not support locks that stay after their release"
            )
        );
    }
    sent.try_recv().unwrap_err();
    let without = request().min_hold(Duration::ZERO).keep(false);
    assert!(pin!(without.try_acquire()).now_or_never().is_none());
}

#[tokio::test]
async fn a_node_whose_store_is_a_quorum_has_no_node_beside_it() {
    let alone = || {
        let (mut node, _) = DeferringNode::new();
        node.capabilities.only_node = true;
        node
    };
    let (first, second) = (MemoryNode::new(), alone());
    let name = second.name().to_string();
    let error = LockManager::builder().node(first).node(second).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::InvalidOption(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!(
            "nodes is 2, but must be 1: the store of the node {name} is a quorum of servers by itself"
        )
    );
    LockManager::builder().node(alone()).connect().await.unwrap();
}

/// A node may keep a place for callers that wait.
#[tokio::test]
async fn an_acquisition_says_whether_its_caller_waits() {
    for expected in [false, true] {
        let (node, mut sent) = DeferringNode::new();
        let locks = LockManager::builder().node(node).connect().await.unwrap();
        let request = locks.lock("order:42");
        let caller =
            async { if expected { request.acquire().await } else { request.try_acquire().await } };
        let execute = async {
            let acquire = sent.recv().await.unwrap();
            let Action::Acquire { ask, .. } = acquire.op.action else { panic!("{acquire:?}") };
            assert_eq!(ask.waits, expected);
            acquire.execute();
        };
        let (guard, ()) = tokio::join!(caller, execute);
        let release = guard.unwrap().release();
        let execute = async { sent.recv().await.unwrap().execute() };
        tokio::join!(release, execute).0.unwrap();
    }
}
