//! Servers that restart with or without their data, with and without the restart guard.

mod clock_steps;
mod power_cuts;

use std::time::{Duration, Instant};

use redlock_core::{
    ConnectError, HoldError, LockError, LockGuard, LockManager, LockManagerBuilder, MemoryNode,
    NodeError, Vote,
};
use redlock_tests::{Logs, Proxy, RedisServer, Servers, eventually};

/// The longest lease, which is also how long a server must run before it votes. It lasts several seconds, because servers
/// report their uptime in whole seconds, and because a busy machine takes a while to restart several servers.
const LEASE: Duration = Duration::from_secs(5);
/// A lease longer than any test: a lock that is gone earlier was forgotten or released.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(30);
const KEY: &str = "order:42";

fn builder(urls: impl IntoIterator<Item = String>) -> LockManagerBuilder {
    redlock_tests::builder(urls).expire(LEASE).node_timeout(LEASE / 2)
}

async fn unguarded(servers: &Servers) -> LockManager {
    builder(servers.urls()).connect().await.unwrap()
}

async fn guarded(servers: &Servers) -> LockManager {
    builder(servers.urls()).restart_guard(LEASE).connect().await.unwrap()
}

async fn granted(locks: &LockManager, key: &str) -> LockGuard {
    eventually("the lock is granted", SOON, async || locks.lock(key).try_acquire().await.ok()).await
}

/// Acquires the lock as soon as all servers vote. They did not start in the same second.
async fn granted_by_all(locks: &LockManager, servers: &Servers) -> LockGuard {
    eventually("all servers grant the lock", SOON, async || {
        let guard = locks.lock(KEY).renew(true).try_acquire().await.ok()?;
        if servers.keys().await.len() == servers.len() {
            return Some(guard);
        }
        guard.release().await.unwrap();
        None
    })
    .await
}

async fn becomes_empty(servers: &Servers) {
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

/// Returns the reasons of the failed votes that `is_kind` accepts.
fn failures(error: &LockError, is_kind: impl Fn(&NodeError) -> bool) -> Vec<NodeError> {
    let votes = error.votes().unwrap().iter();
    let reasons = votes.filter_map(|(_, vote)| match vote {
        Some(Vote::Failed(reason)) => Some(reason.clone()),
        _ => None,
    });
    reasons.filter(is_kind).collect()
}

/// Returns the failed votes of the nodes that were not asked because they had restarted.
fn restarted(error: &LockError) -> Vec<NodeError> {
    failures(error, |reason| matches!(reason, NodeError::Restarted { .. }))
}

async fn has_key(server: &RedisServer) -> bool {
    server.probe().await.time_to_live(KEY).await.is_some()
}

/// Each server is back before the next one is killed, so a majority is always up.
#[tokio::test]
async fn a_rolling_restart_within_a_lease_grants_no_second_holder() {
    let mut servers = Servers::start(3).await;
    let (one, other) = (unguarded(&servers).await, guarded(&servers).await);
    granted_by_all(&other, &servers).await.release().await.unwrap();
    let holder = granted(&one, KEY).await;
    for index in 0..3 {
        servers[index].restart().await;
        let second = other.lock(KEY).try_acquire().await;
        assert!(second.is_err() || !holder.is_valid(), "two holders at once");
    }
    let second = granted(&other, KEY).await;
    assert!(!holder.is_valid(), "two holders at once");
    second.release().await.unwrap();
}

/// A service that starts together with its servers can connect, and logs why no lock is granted yet.
#[tokio::test]
async fn connect_succeeds_on_freshly_started_servers_that_grant_no_lock_yet() {
    let logs = Logs::collect();
    let started = Instant::now();
    let servers = Servers::start(3).await;
    let locks = builder(servers.urls()).restart_guard(LONG).connect().await.unwrap();
    assert!(locks.is_available() && !locks.is_granting());
    let error = locks.lock(KEY).wait_time(SOON).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    let NodeError::Restarted { ago: Some(ago), votes_in, .. } = restarted(&error)[0] else {
        panic!("{error}");
    };
    assert!(ago <= started.elapsed() && ago + votes_in == LONG, "{error}");
    let diagnostics = error.diagnostics().to_string();
    let words = format!("restarted {}s ago, votes again in ", ago.as_secs());
    assert!(diagnostics.contains(&words), "{diagnostics}");
    assert_eq!(logs.count("WARN", "and is quarantined"), 3);

    let shorter = guarded(&servers).await;
    granted(&shorter, KEY).await.release().await.unwrap();
    assert!(shorter.is_granting() && !locks.is_granting());
    assert!(started.elapsed() > LEASE, "{:?}", started.elapsed());
}

/// The server may have forgotten the locks that it granted, and nothing else would tell.
#[tokio::test]
async fn a_restart_without_a_guard_is_logged_as_a_warning() {
    let logs = Logs::collect();
    let mut servers = Servers::start(1).await;
    let locks = unguarded(&servers).await;
    granted(&locks, KEY).await.release().await.unwrap();
    let warned = || logs.count("WARN", "was restarted and may have forgotten held locks");
    assert_eq!(warned(), 0);
    servers[0].restart().await;
    eventually("the restart is logged", SOON, async || (warned() == 1).then_some(())).await;
    // A new connection to the same incarnation is no restart.
    servers[0].probe().await.disconnect_others().await;
    granted(&locks, KEY).await.release().await.unwrap();
    assert_eq!(warned(), 1);
}

/// During its quarantine, a server that kept its data may still extend and release the locks that it has.
#[tokio::test]
async fn locks_that_a_restarted_server_kept_are_extended_and_released() {
    let mut servers = Servers::start_with(&power_cuts::writing("always"), 3).await;
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
    becomes_empty(&servers).await;
}

/// The other servers still have a lock that a minority forgot. The guard delays its restoration.
#[tokio::test]
async fn a_forgotten_lock_is_restored_only_when_the_server_votes_again() {
    let mut servers = Servers::start(3).await;
    let locks = guarded(&servers).await;
    let holder = granted_by_all(&locks, &servers).await;
    let before = Instant::now();
    servers[2].restart().await;
    eventually("the lock is restored", SOON, async || has_key(&servers[2]).await.then_some(()))
        .await;
    assert!(before.elapsed() > LEASE, "after {:?}", before.elapsed());
    assert!(holder.is_valid());
    holder.release().await.unwrap();
}

/// The holder learns that its lock is lost. Even so, no other caller gets the lock before the holder's
/// deadline.
#[tokio::test]
async fn a_lock_that_a_majority_forgot_is_reported_as_lost() {
    let mut servers = Servers::start(3).await;
    let locks = guarded(&servers).await;
    let holder = granted_by_all(&locks, &servers).await;
    for server in &mut servers[..2] {
        server.restart().await;
    }
    let error = eventually("the nodes vote again", SOON, async || {
        let error = holder.extend(LEASE).await.err()?;
        (!matches!(error, HoldError::Unavailable { .. })).then_some(error)
    });
    let error = error.await;
    assert!(matches!(error, HoldError::Lost(_)), "{error}");
    assert!(!holder.is_valid());
}

/// A promoted replica has been up for long, but may not know all locks.
#[tokio::test]
async fn a_promoted_server_is_quarantined_over_every_connection() {
    let servers = Servers::start(2).await;
    let all = guarded(&servers).await;
    granted_by_all(&all, &servers).await.release().await.unwrap();
    let proxy = Proxy::to(&servers[0]).await;
    let locks = builder([proxy.url()]).restart_guard(LEASE).connect().await.unwrap();
    granted(&locks, KEY).await.release().await.unwrap();
    let failover = Instant::now();
    proxy.lead_to(&servers[1]);
    proxy.reset();
    let mut connections = 1;
    let request = || locks.lock(KEY).try_acquire();
    let guard = eventually("the lock is granted", SOON, async || match request().await {
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

/// Without permission for `INFO`, a connection that has lasted for the longest lease proves the uptime.
#[tokio::test]
async fn a_server_with_unknown_uptime_votes_when_its_connection_is_old_enough() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    probe.command::<()>(["ACL", "SETUSER", "default", "-info"]).await;
    let servers = Servers::from(vec![server]);
    let locks = guarded(&servers).await;
    for life in ["connected", "reconnected"] {
        let error = locks.lock(KEY).try_acquire().await.unwrap_err();
        let reasons = restarted(&error);
        let is_unknown = matches!(reasons[..], [NodeError::Restarted { ago: None, .. }]);
        assert!(is_unknown, "{life}: {error}");
        assert!(reasons[0].to_string().contains("INFO"), "{reasons:?}");
        let refused = Instant::now();
        granted(&locks, KEY).await.release().await.unwrap();
        assert!(refused.elapsed() > LEASE / 2, "{life}");
        probe.command::<()>(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        eventually("the server is quarantined again", SOON, async || {
            restarted(&locks.lock(KEY).try_acquire().await.err()?).pop()
        })
        .await;
    }
}

/// The quarantine would end while the longer lease is still held.
#[tokio::test]
async fn a_lease_that_is_longer_than_the_guard_is_an_error() {
    let node = MemoryNode::new();
    let builder = || LockManager::builder().memory_node(&node).restart_guard(LEASE);
    let longer = LEASE + Duration::from_millis(1);
    let error = builder().connect().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "expire is 30s by default, but must be at most 5s, the longest lease of the restart_guard"
    );
    let error = builder().restart_guard(Duration::ZERO).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::InvalidOption(_)), "{error}");
    assert!(error.to_string().starts_with("restart_guard is 0ns"), "{error}");

    let locks = builder().expire(LEASE).connect().await.unwrap();
    let error = locks.lock(KEY).expire(longer).try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidOption(_)), "{error}");
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    let error = guard.extend(longer).await.unwrap_err();
    assert!(matches!(error, HoldError::InvalidOption(_)), "{error}");
    guard.extend(LEASE).await.unwrap();
    guard.release().await.unwrap();
}
