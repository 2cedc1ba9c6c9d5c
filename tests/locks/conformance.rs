//! Behaviours that all kinds of nodes share. Each runs on one node and on several: in memory, on nodes that
//! are written against the public trait, and on real servers, in the plain and in the Redisson dialect.
//!
//! [`node_tests`](redlock_core::test_util::node_tests) has the behaviours that depend on the node. The tests of the actor
//! node (`tests/node`) run them over it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use redlock_core::test_util::node_tests::{
    a_held_lock_excludes_its_own_and_other_managers,
    a_late_release_reports_the_loss_and_keeps_the_next_holders_lock,
    only_one_of_many_callers_holds_the_lock_at_a_time,
    shutdown_releases_held_locks_and_refuses_new_requests,
};
use redlock_core::{FencingToken, HoldError, LockError, LockGuard, LockManager, Vote};
use redlock_tests::{Nodes, ZookeeperServer, eventually, held_briefly, on_each_kind_of_nodes};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
/// A lease whose end a test waits for.
const SHORT: Duration = Duration::from_millis(150);
/// Deadline for actions that take no time on an idle machine.
const SOON: Duration = Duration::from_secs(60);
const KEY: &str = "order:42";

on_each_kind_of_nodes! {
    [
        memory_x1: Nodes::memory(1),
        memory_x5: Nodes::memory(5),
        actor_x1: Nodes::actor(1),
        actor_x3: Nodes::actor(3),
        actor_x5: Nodes::actor(5),
        unordered_x1: Nodes::unordered(1),
        unordered_x3: Nodes::unordered(3),
        unordered_x5: Nodes::unordered(5),
        redis_x1: Nodes::redis(1).await,
        redis_x5: Nodes::redis(5).await,
        memory_x1_redisson: Nodes::memory(1).redisson(),
        redis_x1_redisson: Nodes::redis(1).await.redisson(),
    ]
    if_all_kinds [
        every_sentinel: Nodes::sentinel(1).await,
        every_redis_x5_redisson: Nodes::redis(5).await.redisson(),
        every_cluster: Nodes::cluster().await,
        every_cluster_redisson: Nodes::cluster().await.redisson(),
    ]
    [
        remaining_is_less_than_the_lease_and_decreases,
        an_expired_lock_cannot_be_extended,
        a_lease_without_expire_is_renewed,
        a_lease_with_expire_is_renewed_only_on_request,
        a_lost_lock_reports_its_loss,
        a_released_lock_is_not_lost,
        a_refusal_reports_the_remaining_lease_and_each_vote,
        every_node_names_the_same_holder,
        acquire_without_wait_time_and_try_acquire_do_not_wait,
        waiting_ends_at_wait_time,
        a_waiter_gets_the_lock_when_it_is_released,
        invalid_options_and_keys_are_errors,
        a_drain_refuses_waiters_and_lets_the_holder_finish,
        a_leader_that_is_drained_is_followed_by_one_with_a_greater_token,
    ]
}

on_each_kind_of_nodes! {
    [
        postgres_x1: Nodes::postgres(1, 0).await,
        zookeeper_x1: Nodes::zookeeper().await,
    ]
    [
        every_node_names_the_same_holder,
        a_drain_refuses_waiters_and_lets_the_holder_finish,
        a_leader_that_is_drained_is_followed_by_one_with_a_greater_token,
    ]
}

on_each_kind_of_nodes! {
    [postgres_beside_two_redis: Nodes::postgres(1, 2).await,]
    [every_node_names_the_same_holder,]
}

on_each_kind_of_nodes! {
    [cluster: Nodes::cluster().await,]
    [
        a_held_lock_excludes_its_own_and_other_managers,
        a_late_release_reports_the_loss_and_keeps_the_next_holders_lock,
        a_waiter_gets_the_lock_when_it_is_released,
        shutdown_releases_held_locks_and_refuses_new_requests,
        only_one_of_many_callers_holds_the_lock_at_a_time,
    ]
}

/// Runs the tests of the contract of a node over each kind of nodes, in a module named after the kind.
macro_rules! contract_of {
    ($($kind:ident: [$($several:tt)*] $nodes:expr,)+) => {
        $(mod $kind {
            use super::super::*;

            async fn start() -> Nodes {
                $nodes
            }

            redlock_core::node_tests!($($several)* start);
        })+
    };
}

mod contract {
    contract_of! {
        memory_x1: [] Nodes::memory(1),
        memory_x5: [several:] Nodes::memory(5),
        redis_x1: [] Nodes::redis(1).await,
        redis_x5: [several:] Nodes::redis(5).await,
        memory_x1_redisson: [] Nodes::memory(1).redisson(),
        redis_x1_redisson: [] Nodes::redis(1).await.redisson(),
        postgres_x1: [] Nodes::postgres(1, 0).await,
        zookeeper_x1: [] Nodes::zookeeper().await,
    }
}

mod thorough {
    use super::*;

    contract_of! {
        sentinel_x1: [] Nodes::sentinel(1).await,
        redis_x5_redisson: [several:] Nodes::redis(5).await.redisson(),
        cluster: [] Nodes::cluster().await,
        cluster_redisson: [] Nodes::cluster().await.redisson(),
        postgres_x3: [several:] Nodes::postgres(3, 0).await,
        postgres_beside_two_redis: [several:] Nodes::postgres(1, 2).await,
        // A server that can fail.
        zookeeper_alone: [] Nodes::zookeeper_with(ZookeeperServer::options().independent()).await,
    }

    on_each_kind_of_nodes! {
        [zookeeper_x1: Nodes::zookeeper().await,]
        [
            remaining_is_less_than_the_lease_and_decreases,
            an_expired_lock_cannot_be_extended,
            a_lease_without_expire_is_renewed,
            a_lease_with_expire_is_renewed_only_on_request,
            a_lost_lock_reports_its_loss,
            a_released_lock_is_not_lost,
            a_refusal_reports_the_remaining_lease_and_each_vote,
            acquire_without_wait_time_and_try_acquire_do_not_wait,
            waiting_ends_at_wait_time,
            a_waiter_gets_the_lock_when_it_is_released,
            invalid_options_and_keys_are_errors,
        ]
    }
}

async fn short(locks: &LockManager, key: &str) -> LockGuard {
    held_briefly(|| locks.lock(key).expire(SHORT).try_acquire()).await
}

/// Validity counts from before the first command, less the drift margin (every lock has a deadline).
async fn remaining_is_less_than_the_lease_and_decreases(nodes: Nodes) {
    let locks = nodes.manager().await;
    let before = Instant::now();
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let first = guard.remaining();
    let margin = LONG / 100 + Duration::from_millis(2);
    assert!(first + margin <= LONG, "{first:?}");
    assert!(first + margin + before.elapsed() + Duration::from_millis(1) >= LONG, "{first:?}");
    let second = eventually("time passes", SOON, async || {
        let second = guard.remaining();
        (second < first).then_some(second)
    });
    assert!(second.await < first);
}

async fn an_expired_lock_cannot_be_extended(nodes: Nodes) {
    let locks = nodes.manager().await;
    let guard = short(&locks, KEY).await;
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    let error = guard.extend(LONG).await.unwrap_err();
    assert!(matches!(error, HoldError::Lost(_)), "{error}");
    nodes.become_empty().await;
}

/// As with Redisson's watchdog, the default lease is renewed every third of it.
async fn a_lease_without_expire_is_renewed(nodes: Nodes) {
    let expire = SHORT * 12;
    let builder = nodes.builder().node_timeout(expire / 3).expire(expire);
    let locks = builder.connect().await.unwrap();
    let begun = Instant::now();
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    eventually("the lock is held for several leases", SOON, async || {
        assert!(guard.is_valid(), "lost after {:?}", begun.elapsed());
        (begun.elapsed() > expire * 2).then_some(())
    })
    .await;
    let error = locks.lock(KEY).try_acquire().await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    guard.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_lease_with_expire_is_renewed_only_on_request(nodes: Nodes) {
    let locks = nodes.manager().await;
    let expire = SHORT * 8;
    let plain = locks.lock("plain").expire(expire).try_acquire().await.unwrap();
    let renewed = locks.lock("renewed").expire(expire).renew(true).try_acquire().await.unwrap();
    tokio::time::timeout(SOON, plain.lost()).await.unwrap();
    assert!(renewed.is_valid());
    renewed.release().await.unwrap();
}

/// Loss is never silent.
async fn a_lost_lock_reports_its_loss(nodes: Nodes) {
    let locks = nodes.manager().await;
    let guard = short(&locks, KEY).await;
    let (handle, lost) = (guard.handle(), guard.lost());
    tokio::time::timeout(SOON, lost).await.unwrap();
    assert!(!guard.is_valid() && !handle.is_valid());
    assert_eq!(handle.remaining(), Duration::ZERO);
    // `lost()` also resolves if a caller awaits it after the loss.
    tokio::time::timeout(SOON, handle.lost()).await.unwrap();
}

async fn a_drain_refuses_waiters_and_lets_the_holder_finish(nodes: Nodes) {
    let (here, there) = (nodes.manager().await, nodes.manager().await);
    let holder = here.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let wait =
        |locks: &LockManager| tokio::spawn(locks.lock(KEY).expire(LONG).wait_forever().acquire());
    let (waiter, elsewhere) = (wait(&here), wait(&there));
    tokio::task::yield_now().await;
    let drained = here.drain();
    let refused = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
    assert!(matches!(refused, Err(LockError::Draining)), "{refused:?}");
    let refused = tokio::spawn(here.lock("other").try_acquire()).await.unwrap();
    assert!(matches!(refused, Err(LockError::Draining)), "{refused:?}");
    // The task that holds a lock gets another one.
    let inner = here.lock("other").expire(LONG).wait_forever().acquire().await.unwrap();
    inner.release().await.unwrap();
    assert!(holder.is_valid());
    holder.release().await.unwrap();
    tokio::time::timeout(SOON, drained).await.unwrap();
    let next = tokio::time::timeout(SOON, elsewhere).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
}

/// Returns a task that leads until its manager is drained, and the tokens of its terms.
fn leading(
    locks: &LockManager,
) -> (JoinHandle<Result<(), LockError>>, mpsc::UnboundedReceiver<FencingToken>) {
    let (lead, (sender, tokens)) = (locks.lead(KEY).expire(LONG), mpsc::unbounded_channel());
    let task = tokio::spawn(lead.run(async move |leader| {
        assert!(leader.is_valid());
        sender.send(leader.fencing_token()).unwrap();
        std::future::pending::<()>().await;
    }));
    (task, tokens)
}

async fn a_leader_that_is_drained_is_followed_by_one_with_a_greater_token(nodes: Nodes) {
    let (here, there) = (nodes.manager().await, nodes.manager().await);
    let (leader, mut tokens) = leading(&here);
    let first = tokio::time::timeout(SOON, tokens.recv()).await.unwrap().unwrap();
    let (standby, mut later) = leading(&there);
    tokio::task::yield_now().await;
    assert!(later.try_recv().is_err(), "two leaders");
    drop(here.drain());
    let ended = tokio::time::timeout(SOON, leader).await.unwrap().unwrap();
    assert!(matches!(ended, Err(LockError::Draining)), "{ended:?}");
    let second = tokio::time::timeout(SOON, later.recv()).await.unwrap().unwrap();
    assert!(first < second, "{first:?}, {second:?}");
    there.shutdown().await;
    let ended = tokio::time::timeout(SOON, standby).await.unwrap().unwrap();
    assert!(matches!(ended, Err(LockError::ShutDown)), "{ended:?}");
}

async fn a_released_lock_is_not_lost(nodes: Nodes) {
    let locks = nodes.manager().await;
    let (handle, lost) = eventually("a release before the lease ends", SOON, async || {
        let guard = short(&locks, KEY).await;
        let parts = (guard.handle(), guard.lost());
        guard.release().await.ok().map(|()| parts)
    })
    .await;
    assert!(!handle.is_valid(), "the handle of a released lock is still valid");
    // Waits for longer than the first lease: until another lock with twice that lease is lost.
    let other = || locks.lock("other").expire(SHORT * 2).try_acquire();
    let other = held_briefly(other).await;
    tokio::time::timeout(SOON, other.lost()).await.unwrap();
    assert!(lost.now_or_never().is_none(), "a released lock was reported as lost");
}

/// Contended and unavailable are different errors; rslock does not distinguish "held" from "down".
async fn a_refusal_reports_the_remaining_lease_and_each_vote(nodes: Nodes) {
    let (one, other) = (nodes.manager().await, nodes.manager().await);
    let _guard = one.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    nodes.all_hold(KEY).await;
    let error = other.lock(KEY).expire(LONG).try_acquire().await.unwrap_err();
    let LockError::Contended { key, remaining: Some(remaining), votes, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(key.as_str(), KEY);
    assert!(*remaining <= LONG && *remaining + SOON > LONG, "{remaining:?}");
    assert_eq!(votes.len(), nodes.len());
    let held = votes.iter().filter(|(_, vote)| matches!(vote, Some(Vote::Held { .. }))).count();
    assert!(held > nodes.len() / 2, "{votes}");
    let text = error.diagnostics().to_string();
    for node in other.nodes() {
        assert!(text.contains(node), "{text}");
    }
}

/// The id stays while the lock is held. Nodes of different kinds name the same holder, too.
async fn every_node_names_the_same_holder(nodes: Nodes) {
    let (one, other) = (nodes.manager().await, nodes.manager().await);
    let mut ids = HashSet::new();
    for _ in 0..2 {
        let guard = one.lock(KEY).expire(LONG / 2).try_acquire().await.unwrap();
        nodes.all_hold(KEY).await;
        for extends in [false, true] {
            if extends {
                guard.extend(LONG).await.unwrap();
            }
            let error = other.lock(KEY).expire(LONG).try_acquire().await.unwrap_err();
            let votes = error.votes().unwrap().iter().filter_map(|(_, vote)| vote);
            ids.extend(votes.map(|vote| vote.holder().unwrap()));
        }
        guard.release().await.unwrap();
        nodes.become_empty().await;
    }
    assert_eq!(ids.len(), 2, "{ids:?}");
}

async fn acquire_without_wait_time_and_try_acquire_do_not_wait(nodes: Nodes) {
    let locks = nodes.manager().await;
    let _guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let acquired = tokio::time::timeout(SOON, locks.lock(KEY).try_acquire());
    assert!(acquired.await.unwrap().unwrap_err().is_contended());
    let tried = tokio::time::timeout(SOON, locks.lock(KEY).wait_time(LONG).try_acquire());
    assert!(tried.await.unwrap().unwrap_err().is_contended());
}

async fn waiting_ends_at_wait_time(nodes: Nodes) {
    let locks = nodes.manager().await;
    let _guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let begun = Instant::now();
    let waiting = locks.lock(KEY).wait_time(SHORT).acquire();
    let error = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap_err();
    assert!(error.is_contended(), "{error}");
    assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
}

async fn a_waiter_gets_the_lock_when_it_is_released(nodes: Nodes) {
    let (one, other) = (nodes.manager().await, nodes.manager().await);
    let guard = one.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let mut waiting = tokio::spawn(other.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    let early = tokio::time::timeout(SHORT, &mut waiting).await;
    assert!(early.is_err(), "two holders at once");
    guard.release().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.is_valid());
}

/// Redlock for Rust treated a lease of 1 ms as endless.
async fn invalid_options_and_keys_are_errors(nodes: Nodes) {
    let locks = nodes.manager().await;
    let day = Duration::from_secs(24 * 60 * 60);
    for expire in [Duration::ZERO, Duration::from_millis(1), day * 8, Duration::MAX] {
        let error = locks.lock(KEY).expire(expire).try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidOption(_)), "{expire:?}: {error}");
        nodes.builder().expire(expire).connect().await.unwrap_err();
    }
    for key in ["", "with\nline", "with\0nothing"] {
        let error = locks.lock(key).try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidKey(_)), "{key:?}: {error}");
    }
    let unrenewed = locks.lock(KEY).expire(LONG).max_hold(LONG).try_acquire().await.unwrap_err();
    assert!(unrenewed.to_string().contains("max_hold requires renew"), "{unrenewed}");
    nodes.builder().node_timeout(Duration::ZERO).connect().await.unwrap_err();
    nodes.builder().connect_timeout(Duration::ZERO).connect().await.unwrap_err();
    let error = nodes.builder().outage_grace(day).connect().await.unwrap_err();
    assert!(error.to_string().contains("outage_grace"), "{error}");
    nodes.builder().prefix("with\nline").connect().await.unwrap_err();

    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let error = guard.extend(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, HoldError::InvalidOption(_)), "{error}");
    assert!(guard.is_valid());
}
