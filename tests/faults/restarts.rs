//! Servers that restart with or without their data, with and without the restart guard.

use std::time::{Duration, Instant};

use redlock_core::{
    ConnectError, ExtendError, LockError, LockGuard, LockManager, LockManagerBuilder, MemoryNode,
    NodeError, Vote,
};
use redlock_tests::{Logs, Proxy, RedisServer, Servers, eventually};

/// The longest lease. It lasts several seconds, because servers report their uptime in whole seconds.
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

/// Acquires the lock as soon as all servers vote. They did not start in the same second.
async fn granted_by_all(locks: &LockManager, servers: &Servers) -> LockGuard {
    eventually("all servers grant the lock", SOON, async || {
        let guard = locks.lock(KEY).expire(LEASE).renew(true).try_acquire().await.ok()?;
        if servers.keys().await.len() == servers.len() {
            return Some(guard);
        }
        guard.release().await.unwrap();
        None
    })
    .await
}

/// Returns the failed votes of the nodes that were not asked because they had restarted.
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

/// Restarts a majority without its data while a holder has the lock and `other` asks for it. Returns whether
/// both had a valid lock at the same time.
async fn restart_under_a_holder(mut servers: Servers, other: LockManager) -> bool {
    let one = builder(&servers).connect().await.unwrap();
    let holder = one.lock(KEY).expire(LEASE).try_acquire().await.unwrap();
    let killed = servers.len() / 2 + 1;
    for server in &mut servers[..killed] {
        server.restart().await;
    }
    let mut refusals = Vec::new();
    let second = eventually("the other manager gets the lock", SOON, async || {
        try_acquire(&other).await.map_err(|error| refusals.push(error)).ok()
    });
    let second = second.await;
    let overlap = holder.is_valid();
    if !overlap {
        let reported = refusals.iter().filter(|error| restarted(error).len() == killed);
        assert!(reported.count() > 0, "{refusals:?}");
    }
    second.release().await.unwrap();
    overlap
}

/// A majority that restarted without data grants a lock that is held. The overlap without the guard proves
/// that this test can detect one.
#[tokio::test]
async fn a_majority_that_forgot_the_holder_grants_a_second_one_unless_guarded() {
    for nodes in [1, 3] {
        let servers = Servers::start(nodes).await;
        let other = builder(&servers).connect().await.unwrap();
        assert!(restart_under_a_holder(servers, other).await, "{nodes} nodes, not guarded");
    }
    // Both runs mostly wait, so they run at the same time.
    let guarded_one = async |nodes| {
        let servers = Servers::start(nodes).await;
        let other = guarded(&servers).await;
        assert!(!restart_under_a_holder(servers, other).await, "{nodes} nodes, guarded");
    };
    tokio::join!(guarded_one(1), guarded_one(3));
}

/// Each server is back before the next one is killed, so a majority is always up.
#[tokio::test]
async fn a_rolling_restart_within_a_lease_grants_no_second_holder() {
    let mut servers = Servers::start(3).await;
    let (one, other) = (builder(&servers).connect().await.unwrap(), guarded(&servers).await);
    granted(&other).await.release().await.unwrap();
    // On a busy machine the lease may end before the last server is back. Such a round proves nothing.
    let holder = eventually("all servers restart within a lease", SOON * 3, async || {
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

/// A service that starts together with its servers can connect, and logs why no lock is granted yet.
#[tokio::test]
async fn connect_succeeds_on_freshly_started_servers_that_grant_no_lock_yet() {
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
    let diagnostics = error.diagnostics().to_string();
    assert!(diagnostics.contains("restarted 0s ago, votes again in "), "{diagnostics}");
    let warned = |line: &String| line.contains("and is quarantined");
    assert_eq!(logs.lines().iter().filter(|line| warned(line)).count(), 3);

    granted(&locks).await.release().await.unwrap();
    assert!(started.elapsed() > LEASE, "{:?}", started.elapsed());
}

/// The server may have forgotten the locks that it granted, and nothing else would tell.
#[tokio::test]
async fn a_restart_without_a_guard_is_logged_as_a_warning() {
    let logs = Logs::collect();
    let mut servers = Servers::start(1).await;
    let locks = builder(&servers).connect().await.unwrap();
    granted(&locks).await.release().await.unwrap();
    let warned = || logs.count("WARN", "was restarted and may have forgotten held locks");
    assert_eq!(warned(), 0);
    servers[0].restart().await;
    eventually("the restart is logged", SOON, async || (warned() == 1).then_some(())).await;
    // A new connection to the same incarnation is no restart.
    servers[0].probe().await.disconnect_others().await;
    granted(&locks).await.release().await.unwrap();
    assert_eq!(warned(), 1);
}

/// During its quarantine, a server that kept its data may still extend and release the locks that it has.
#[tokio::test]
async fn locks_that_a_restarted_server_kept_are_extended_and_released() {
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
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
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
        (!matches!(error, ExtendError::Unavailable { .. })).then_some(error)
    });
    let error = error.await;
    assert!(matches!(error, ExtendError::Lost { .. }), "{error}");
    assert!(!holder.is_valid());
}

/// A promoted replica has been up for long, but may not know all locks.
#[tokio::test]
async fn a_promoted_server_is_quarantined_over_every_connection() {
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

/// Without permission for `INFO`, a connection that has lasted for the longest lease proves the uptime.
#[tokio::test]
async fn a_server_with_unknown_uptime_votes_when_its_connection_is_old_enough() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    probe.command::<()>(["ACL", "SETUSER", "default", "-info"]).await;
    let servers = Servers::from(vec![server]);
    let locks = guarded(&servers).await;
    for life in ["connected", "reconnected"] {
        let error = try_acquire(&locks).await.unwrap_err();
        let reasons = restarted(&error);
        let is_unknown = matches!(reasons[..], [NodeError::Restarted { ago: None, .. }]);
        assert!(is_unknown, "{life}: {error}");
        assert!(reasons[0].to_string().contains("INFO"), "{reasons:?}");
        let refused = Instant::now();
        granted(&locks).await.release().await.unwrap();
        assert!(refused.elapsed() > LEASE / 2, "{life}");
        probe.command::<()>(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        eventually("the server is quarantined again", SOON, async || {
            restarted(&try_acquire(&locks).await.err()?).pop()
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
