//! Labels, status and break of fair locks and of locks that a scope has joined, over each kind of nodes.

use std::time::Duration;

use redlock_core::{
    HoldError, KeyState, LockError, LockGuard, LockManager, LockStatus, OwnerLabel, scope,
};
use redlock_tests::{Nodes, eventually, on_each_kind_of_nodes};

use super::fair::tickets_at;

/// A lease longer than any test. ZooKeeper grants twice this time, too.
const LONG: Duration = Duration::from_secs(200);
const SOON: Duration = Duration::from_secs(60);
const KEY: &str = "door";

on_each_kind_of_nodes! {
    [
        memory_x1: Nodes::memory(1),
        memory_x5: Nodes::memory(5),
        redis_x1: Nodes::redis(1).await,
        redis_x5: Nodes::redis(5).await,
        sentinel_x1: Nodes::sentinel(1).await,
        cluster: Nodes::cluster().await,
        postgres_x1: Nodes::postgres(1, 0).await,
        zookeeper_x1: Nodes::zookeeper().await,
        actor_x3: Nodes::actor(3),
    ]
    [
        a_fair_lock_that_is_broken_goes_to_the_waiters_in_their_order,
        a_break_ends_all_guards_of_a_scope,
    ]
}

async fn manager(nodes: &Nodes, label: &str) -> LockManager {
    nodes.builder().owner_label(label).connect().await.unwrap()
}

fn label(seen: &LockStatus) -> Option<&str> {
    seen.holders().first()?.label().map(OwnerLabel::as_str)
}

async fn break_only(ops: &LockManager) {
    let seen = ops.status(KEY).await.unwrap();
    let [holder] = seen.holders() else { panic!("{seen:?}") };
    ops.break_lock(KEY, holder).await.unwrap();
}

/// Passes for nodes without fair queues. On nodes that are no Redis servers, one process waits, because its ticket is not seen.
async fn a_fair_lock_that_is_broken_goes_to_the_waiters_in_their_order(nodes: Nodes) {
    let (shop, ops) = (manager(&nodes, "shop").await, manager(&nodes, "ops").await);
    let fair = |locks: &LockManager| locks.lock(KEY).expire(LONG).fair(true);
    let held = match fair(&shop).try_acquire().await {
        Err(LockError::InvalidOption(error)) if error.option() == "fair" => return,
        held => held.unwrap(),
    };
    nodes.all_hold(KEY).await;
    let refused = fair(&ops).try_acquire().await.unwrap_err();
    assert_eq!(refused.holder(), shop.owner_label(), "{refused:?}");

    let mut waiting = Vec::new();
    for number in 1..=3 {
        // The operator's process waits, too.
        let locks = if number == 2 { ops.clone() } else { manager(&nodes, "waiter").await };
        waiting.push(tokio::spawn(fair(&locks).wait_time(SOON).acquire()));
        eventually("the caller waits", SOON, async || {
            let waits = locks.status(KEY).await.ok()?.local_waiters() == 1;
            let is_refused =
                locks.snapshot().waiting.first()?.holder == shop.owner_label().cloned();
            (waits && (number > 1 || is_refused)).then_some(())
        })
        .await;
        // The queue is beside the lock, on the first node.
        match nodes.probes(KEY).await.first_mut() {
            Some(probe) => tickets_at(probe, number).await,
            // The order between processes is not seen.
            None => break,
        }
    }
    let seen = ops.status(KEY).await.unwrap();
    assert_eq!((seen.state(), label(&seen)), (KeyState::Exclusive, Some("shop")), "{seen:?}");
    break_only(&ops).await;
    assert!(held.extend(LONG).await.is_err());
    for (number, waiter) in waiting.into_iter().enumerate() {
        let next: LockGuard = waiter.await.unwrap().unwrap();
        nodes.all_hold(KEY).await;
        let seen = ops.status(KEY).await.unwrap();
        let expected = if number == 1 { "ops" } else { "waiter" };
        assert_eq!(label(&seen), Some(expected), "waiter {number}: {seen:?}");
        next.release().await.unwrap();
    }
    assert!(held.release().await.is_err());
    shop.shutdown().await;
    nodes.become_empty().await;
}

/// A joined lock is one holder on the nodes, with several guards in its process.
async fn a_break_ends_all_guards_of_a_scope(nodes: Nodes) {
    let (shop, ops) = (manager(&nodes, "shop").await, manager(&nodes, "ops").await);
    let request = || shop.lock(KEY).expire(LONG).reentrant(true);
    for is_own in [false, true] {
        scope(async {
            let outer = request().try_acquire().await.unwrap();
            let inner = request().try_acquire().await.unwrap();
            nodes.all_hold(KEY).await;
            assert_eq!(shop.snapshot().held[0].guards, 2);
            let refused = ops.lock(KEY).try_acquire().await.unwrap_err();
            assert_eq!(refused.holder(), shop.owner_label(), "{refused:?}");
            let seen = shop.status(KEY).await.unwrap();
            let [holder] = seen.holders() else { panic!("{seen:?}") };
            assert_eq!((holder.nodes(), holder.is_own()), (nodes.len(), true), "{seen:?}");
            assert_eq!(label(&seen), Some("shop"));

            break_only(if is_own { &shop } else { &ops }).await;
            assert_eq!(inner.is_valid(), !is_own);
            // A holder of another process learns of it at its next question.
            let lost = inner.extend(LONG).await.unwrap_err();
            assert!(matches!(lost, HoldError::Lost(_)), "{lost}");
            assert!(!outer.is_valid() && !inner.is_valid());
            assert!(shop.snapshot().held.is_empty());
            // The same scope gets the lock anew, and the former guards leave it alone.
            let again = request().try_acquire().await.unwrap();
            // The last guard reports the loss.
            inner.release().await.unwrap();
            outer.release().await.unwrap_err();
            again.extend(LONG).await.unwrap();
            again.release().await.unwrap();
        })
        .await;
        nodes.become_empty().await;
    }
}
