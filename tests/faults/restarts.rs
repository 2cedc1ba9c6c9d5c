//! Servers that are restarted, with and without their data, with and without the restart guard.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use redlock_core::{
    ConnectError, ExtendError, LockError, LockGuard, LockManager, LockManagerBuilder, MemoryNode,
    NodeError, Vote,
};
use redlock_tests::{Logs, Proxy, RedisServer, Servers, eventually};

/// The longest lease. Servers tell their uptime in whole seconds, so that the shortest useful one is
/// of some.
const LEASE: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(20);
const KEY: &str = "order:42";

fn builder(servers: &Servers) -> LockManagerBuilder {
    LockManager::builder()
        .urls(servers.urls())
        .expire(LEASE)
        .node_timeout(Duration::from_secs(1))
        .connect_timeout(SOON)
}

async fn guarded(servers: &Servers) -> LockManager {
    builder(servers).restart_guard(LEASE).connect().await.unwrap()
}

async fn try_acquire(locks: &LockManager) -> Result<LockGuard, LockError> {
    locks.lock(KEY).expire(LEASE).try_acquire().await
}

async fn granted(locks: &LockManager) -> LockGuard {
    eventually("the lock is granted", SOON, async || try_acquire(locks).await.ok()).await
}

/// As soon as all servers vote: they were not started in the same second.
async fn granted_by_all(locks: &LockManager, servers: &Servers) -> LockGuard {
    eventually("all grant the lock", SOON, async || {
        let guard = locks.lock(KEY).expire(LEASE).renew(true).try_acquire().await.ok()?;
        if servers.keys().await.len() == servers.len() {
            return Some(guard);
        }
        guard.release().await.unwrap();
        None
    })
    .await
}

/// The reasons of the nodes that were not asked because they were restarted.
fn restarted(error: &LockError) -> Vec<NodeError> {
    let votes = error.votes().unwrap().iter();
    votes
        .filter_map(|(_, vote)| match vote {
            Some(Vote::Failed(reason @ NodeError::Restarted { .. })) => Some(reason.clone()),
            _ => None,
        })
        .collect()
}

async fn has_key(server: &RedisServer) -> bool {
    server.probe().await.time_to_live(KEY).await.is_some()
}

/// One holds the lock, its majority is killed and comes back without its data, another asks. Says
/// whether the two believed in the lock at the same time.
async fn restart_under_a_holder(mut servers: Servers, other: LockManager) -> bool {
    let one = builder(&servers).connect().await.unwrap();
    let holder = one.lock(KEY).expire(LEASE).try_acquire().await.unwrap();
    let killed = servers.len() / 2 + 1;
    for server in &mut servers[..killed] {
        server.restart().await;
    }
    let mut refusals = Vec::new();
    let second = eventually("the other gets the lock", SOON, async || {
        try_acquire(&other).await.map_err(|error| refusals.push(error)).ok()
    });
    let second = second.await;
    let overlap = holder.is_valid();
    if !overlap {
        let told = refusals.iter().filter(|error| restarted(error).len() == killed);
        assert!(told.count() > 0, "{refusals:?}");
    }
    second.release().await.unwrap();
    overlap
}

/// Restarted without data, a majority grants a lock that is held. That it does without the guard is
/// the proof that this test could see it.
#[tokio::test]
async fn a_majority_that_has_forgotten_the_holder_lets_a_second_one_in_unless_it_is_guarded() {
    for nodes in [1, 3] {
        let servers = Servers::start(nodes).await;
        let other = builder(&servers).connect().await.unwrap();
        assert!(restart_under_a_holder(servers, other).await, "{nodes} nodes, not guarded");
    }
    // They wait for most of the time.
    let guarded_one = async |nodes| {
        let servers = Servers::start(nodes).await;
        let other = guarded(&servers).await;
        assert!(!restart_under_a_holder(servers, other).await, "{nodes} nodes, guarded");
    };
    tokio::join!(guarded_one(1), guarded_one(3));
}

/// One after another, each back before the next is killed: a majority is up all the time.
#[tokio::test]
async fn a_rolling_restart_inside_a_lease_does_not_let_a_second_one_in() {
    let mut servers = Servers::start(3).await;
    let (one, other) = (builder(&servers).connect().await.unwrap(), guarded(&servers).await);
    granted(&other).await.release().await.unwrap();
    // A machine that is so busy that the lease is over before the last is back shows nothing.
    let holder = eventually("all are restarted inside a lease", SOON * 3, async || {
        let holder = granted(&one).await;
        for index in 0..3 {
            servers[index].restart().await;
            assert!(try_acquire(&other).await.is_err());
        }
        holder.is_valid().then_some(holder)
    });
    let holder = holder.await;
    let second = granted(&other).await;
    assert!(!holder.is_valid(), "two holders at once");
    second.release().await.unwrap();
}

/// A service that is started together with its servers starts, and says what it waits for.
#[tokio::test]
async fn servers_that_were_all_just_started_can_be_connected_to_and_grant_nothing_yet() {
    let logs = Logs::collect();
    let started = Instant::now();
    let servers = Servers::start(3).await;
    let locks = guarded(&servers).await;
    let waiting = locks.lock(KEY).wait_time(SOON).acquire();
    let error = waiting.await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    let NodeError::Restarted { ago: Some(ago), votes_in, .. } = restarted(&error)[0] else {
        panic!("{error}");
    };
    assert!(ago <= started.elapsed() && ago + votes_in == LEASE, "{error}");
    assert!(error.to_string().contains("restarted 0s ago, votes again in "), "{error}");
    let warned = |line: &String| line.contains("grants none for now");
    assert_eq!(logs.lines().iter().filter(|line| warned(line)).count(), 3);

    granted(&locks).await.release().await.unwrap();
    assert!(started.elapsed() > LEASE, "{:?}", started.elapsed());
}

/// A server that has kept its data, after a restart in order: its word on what it has counts, and
/// what it has is removed.
#[tokio::test]
async fn what_a_restarted_server_has_kept_is_extended_and_released() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        let options = RedisServer::options().directive("appendonly", "yes");
        servers.push(options.directive("appendfsync", "always").start().await);
    }
    let mut servers = Servers::from(servers);
    let locks = guarded(&servers).await;
    let holder = granted_by_all(&locks, &servers).await;
    for server in &mut servers[..2] {
        server.restart().await;
    }
    eventually("the lease is extended", SOON, async || holder.extend(LEASE).await.ok()).await;
    eventually("no new lock is granted", SOON, async || {
        let error = locks.lock("other").try_acquire().await.unwrap_err();
        (restarted(&error).len() == 2).then_some(())
    })
    .await;
    holder.release().await.unwrap();
    eventually("nothing is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

/// What a minority has forgotten stands on the others, and is set again when the guard permits.
#[tokio::test]
async fn a_forgotten_lock_is_set_again_only_when_the_server_votes_again() {
    let mut servers = Servers::start(3).await;
    let locks = guarded(&servers).await;
    let holder = granted_by_all(&locks, &servers).await;
    let before = Instant::now();
    servers[2].restart().await;
    eventually("it is set again", SOON, async || has_key(&servers[2]).await.then_some(())).await;
    assert!(before.elapsed() > LEASE, "after {:?}", before.elapsed());
    assert!(holder.is_valid());
    holder.release().await.unwrap();
}

/// What a quorum has forgotten is lost, and the holder is told: nobody else gets it before its
/// deadline all the same.
#[tokio::test]
async fn a_holder_whose_lock_a_majority_has_forgotten_is_told() {
    let mut servers = Servers::start(3).await;
    let locks = guarded(&servers).await;
    let holder = granted_by_all(&locks, &servers).await;
    for server in &mut servers[..2] {
        server.restart().await;
    }
    let error = eventually("the nodes are asked", SOON, async || {
        let error = holder.extend(LEASE).await.err()?;
        (!matches!(error, ExtendError::Unavailable { .. })).then_some(error)
    });
    let error = error.await;
    assert!(matches!(error, ExtendError::Lost { .. }), "{error}");
    assert!(!holder.is_valid());
}

/// What is promoted has been running for long, and may not know who holds what.
#[tokio::test]
async fn a_server_that_has_taken_anothers_place_is_guarded_over_every_connection() {
    let servers = Servers::start(2).await;
    let all = guarded(&servers).await;
    granted_by_all(&all, &servers).await.release().await.unwrap();
    let proxy = Proxy::to(&servers[0]).await;
    let locks = LockManager::builder()
        .url(proxy.url())
        .expire(LEASE)
        .node_timeout(Duration::from_secs(1))
        .restart_guard(LEASE)
        .connect()
        .await
        .unwrap();
    granted(&locks).await.release().await.unwrap();
    let failover = Instant::now();
    proxy.lead_to(&servers[1]);
    proxy.reset();
    let mut connections = 1;
    let guard = eventually("the lock is granted", SOON, async || match try_acquire(&locks).await {
        Ok(guard) => Some(guard),
        Err(error) => {
            if connections < 3 && !restarted(&error).is_empty() {
                connections += 1;
                proxy.reset();
            }
            None
        }
    })
    .await;
    assert!(failover.elapsed() >= LEASE, "after {:?}", failover.elapsed());
    guard.release().await.unwrap();
}

/// Without the right to INFO, a connection that has lasted for the longest lease is the proof.
#[tokio::test]
async fn a_server_that_does_not_tell_its_uptime_votes_when_its_connection_is_old_enough() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    probe.command::<()>(["ACL", "SETUSER", "default", "-info"]).await;
    let servers = Servers::from(vec![server]);
    let locks = guarded(&servers).await;
    for life in ["connected", "reconnected"] {
        let error = try_acquire(&locks).await.unwrap_err();
        let told = restarted(&error);
        let untold = matches!(told[..], [NodeError::Restarted { ago: None, .. }]);
        assert!(untold, "{life}: {error}");
        assert!(error.to_string().contains("INFO"), "{error}");
        let refused = Instant::now();
        granted(&locks).await.release().await.unwrap();
        assert!(refused.elapsed() > LEASE / 2, "{life}");
        probe.command::<()>(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        eventually("it has to wait again", SOON, async || {
            restarted(&try_acquire(&locks).await.err()?).pop()
        })
        .await;
    }
}

/// Two leases are one too many: the guard would let go while the longer one is held.
#[tokio::test]
async fn a_lease_that_is_longer_than_the_guard_is_an_error() {
    let node = MemoryNode::new();
    let builder = || LockManager::builder().memory_node(&node).restart_guard(LEASE);
    let longer = LEASE + Duration::from_millis(1);
    let error = builder().connect().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "expire is 30s, but must be at most 3s, the longest lease of the restart_guard"
    );
    let error = builder().restart_guard(Duration::ZERO).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::InvalidOption(_)), "{error}");
    assert!(error.to_string().starts_with("restart_guard is 0ns"), "{error}");

    let locks = builder().expire(LEASE).connect().await.unwrap();
    let error = locks.lock(KEY).expire(longer).try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidOption(_)), "{error}");
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    let error = guard.extend(longer).await.unwrap_err();
    assert!(matches!(error, ExtendError::InvalidOption(_)), "{error}");
    guard.extend(LEASE).await.unwrap();
    guard.release().await.unwrap();
}
