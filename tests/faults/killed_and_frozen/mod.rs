//! Killed and frozen servers that come back.

mod measured;

use std::time::{Duration, Instant};

use redlock_core::test_util::node_tests::StoreFault;
use redlock_core::{LockError, LockManager, ReleaseError};
use redlock_tests::{Logs, Nodes, Servers, builder, connect, eventually};

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(60);
/// A node timeout that no test reaches.
const NODE_TIMEOUT: Duration = Duration::from_secs(20);
/// The silence after which a frozen server has no vote. Tests wait for so long.
const SILENCE: Duration = Duration::from_secs(1);
const KEY: &str = "order:42";

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Freeze,
}

impl Fault {
    fn strike(self, servers: &mut Servers, count: usize) {
        for server in &mut servers[..count] {
            match self {
                Self::Kill => server.kill(),
                Self::Freeze => server.freeze(),
            }
        }
    }

    async fn undo(self, servers: &mut Servers, count: usize) {
        for server in &mut servers[..count] {
            match self {
                Self::Kill => server.restart().await,
                Self::Freeze => server.thaw(),
            }
        }
    }
}

/// Acquires and releases the lock. Returns how long both took together.
async fn pair(locks: &LockManager, key: &str) -> Duration {
    let begun = Instant::now();
    let guard = locks.lock(key).expire(LONG).try_acquire().await.unwrap();
    guard.release().await.unwrap();
    begun.elapsed()
}

/// Waits until the lock is granted, and releases it.
async fn served_again(locks: &LockManager) {
    let guard = eventually("requests are served again", SOON, async || {
        locks.lock(KEY).expire(LONG).try_acquire().await.ok()
    });
    guard.await.release().await.unwrap();
}

async fn becomes_empty(servers: &Servers) {
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

/// Each request is served, from the first one on, and none waits for the faulty nodes until the node timeout.
#[tokio::test]
async fn a_minority_that_is_down_costs_no_request_its_node_timeout() {
    for (fault, count) in [Fault::Kill, Fault::Freeze].into_iter().flat_map(|f| [(f, 1), (f, 2)]) {
        let mut servers = Servers::start(5).await;
        let locks = builder(servers.urls()).node_timeout(NODE_TIMEOUT).connect().await.unwrap();
        pair(&locks, KEY).await;
        fault.strike(&mut servers, count);
        for request in 0..40 {
            let took = pair(&locks, &format!("order:{request}")).await;
            assert!(took < NODE_TIMEOUT, "{fault:?} of {count}: {took:?}");
        }
    }
}

/// With three of five nodes down, requests are refused, and served again when the nodes are back.
#[tokio::test]
async fn without_a_quorum_requests_are_refused_until_the_nodes_are_back() {
    for fault in [Fault::Kill, Fault::Freeze] {
        let mut servers = Servers::start(5).await;
        let locks = builder(servers.urls()).node_timeout(SILENCE).connect().await.unwrap();
        pair(&locks, KEY).await;
        fault.strike(&mut servers, 3);
        for _ in 0..5 {
            let begun = Instant::now();
            let error = locks.lock(KEY).wait_time(LONG).acquire().await.unwrap_err();
            assert!(begun.elapsed() < SOON, "{fault:?}: {:?}", begun.elapsed());
            let LockError::Unavailable { votes, .. } = &error else { panic!("{error}") };
            assert_eq!(votes.len(), 5);
            let diagnostics = error.diagnostics().to_string();
            for server in &servers[..3] {
                let node = format!("127.0.0.1:{}", server.port());
                assert!(diagnostics.contains(&node), "{diagnostics}");
            }
        }
        fault.undo(&mut servers, 3).await;
        served_again(&locks).await;
        becomes_empty(&servers).await;
    }
}

/// A node that thaws may execute commands that were sent long ago. The clean-up must not have overtaken them.
#[tokio::test]
async fn an_abandoned_attempt_on_a_frozen_node_is_cleaned_up_after_it_thaws() {
    let mut servers = Servers::start(5).await;
    // Shorter, because each of ten rounds waits for so long.
    let locks = builder(servers.urls()).node_timeout(SILENCE / 5).connect().await.unwrap();
    for round in 0..10 {
        let (abandoned, granted) = (format!("abandoned:{round}"), format!("granted:{round}"));
        Fault::Freeze.strike(&mut servers, 3);
        locks.lock(&abandoned).expire(LONG).try_acquire().await.unwrap_err();
        // The other two nodes thaw only after this lock was granted.
        servers[0].thaw();
        let guard = eventually("a quorum is back", SOON, async || {
            locks.lock(&granted).expire(LONG).try_acquire().await.ok()
        });
        drop(guard.await);
        for server in &mut servers[1..3] {
            server.thaw();
        }
        becomes_empty(&servers).await;
    }
}

/// A future that is dropped while its nodes are frozen is cleaned up when they thaw.
#[tokio::test]
async fn a_future_dropped_while_nodes_are_frozen_leaves_nothing_when_they_thaw() {
    let mut servers = Servers::start(3).await;
    let locks = connect(servers.urls()).await;
    Fault::Freeze.strike(&mut servers, 3);
    let attempt = locks.lock(KEY).expire(LONG).try_acquire();
    let cancelled = tokio::time::timeout(Duration::from_millis(20), attempt).await;
    assert!(cancelled.is_err());
    Fault::Freeze.undo(&mut servers, 3).await;
    served_again(&locks).await;
    becomes_empty(&servers).await;
}

/// A holder without its majority cannot renew, and must learn of the loss by its deadline. Redisson's renewal
/// ends silently.
#[tokio::test]
async fn a_holder_whose_quorum_is_gone_loses_the_lock_at_its_deadline() {
    let mut servers = Servers::start(3).await;
    let expire = Duration::from_secs(2);
    let builder = builder(servers.urls()).expire(expire).node_timeout(expire / 2);
    let locks = builder.connect().await.unwrap();
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    Fault::Freeze.strike(&mut servers, 2);
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert!(!guard.is_valid());
    assert!(guard.remaining().is_zero());
}

/// While validity is left, a failed extension changes nothing (a failed extension is not a release).
#[tokio::test]
async fn a_renewal_survives_a_short_loss_of_the_quorum() {
    let mut servers = Servers::start(3).await;
    let expire = Duration::from_secs(6);
    let builder = builder(servers.urls()).expire(expire).node_timeout(SILENCE);
    let locks = builder.connect().await.unwrap();
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    Fault::Freeze.strike(&mut servers, 2);
    // The first renewal, after a third of the lease, fails.
    eventually("more than a third of the lease is over", SOON, async || {
        (guard.remaining() < expire / 2).then_some(())
    })
    .await;
    Fault::Freeze.undo(&mut servers, 2).await;
    eventually("the lease is renewed", SOON, async || {
        assert!(guard.is_valid(), "lost, although it could have been renewed in time");
        (guard.remaining() > expire * 2 / 3).then_some(())
    })
    .await;
    guard.release().await.unwrap();
}

/// The lock must not stay on a node that was frozen during the release.
#[tokio::test]
async fn a_release_reaches_a_node_that_was_frozen_meanwhile() {
    let mut nodes = Nodes::redis(3).await;
    let locks = nodes.manager().await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    nodes.all_hold(KEY).await;
    nodes[2].fault(StoreFault::Freeze).await;
    guard.release().await.unwrap();
    nodes[2].fault(StoreFault::Thaw).await;
    nodes.become_empty().await;
}

#[tokio::test]
async fn a_release_without_a_quorum_fails_in_time_and_continues_in_the_background() {
    let logs = Logs::collect();
    let mut servers = Servers::start(3).await;
    let locks = builder(servers.urls()).node_timeout(SILENCE).connect().await.unwrap();
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    Fault::Freeze.strike(&mut servers, 2);
    let begun = Instant::now();
    let error = guard.release().await.unwrap_err();
    assert!(begun.elapsed() < SOON);
    assert!(matches!(error, ReleaseError::Unavailable { .. }), "{error}\n{:#?}", logs.lines());
    Fault::Freeze.undo(&mut servers, 2).await;
    becomes_empty(&servers).await;
}

/// Without `shutdown`, the locks of a process that ends would stay until their leases end (dropping is always
/// safe).
#[tokio::test]
async fn shutdown_waits_for_pending_releases() {
    let mut nodes = Nodes::redis(3).await;
    let locks = nodes.manager().await;
    let held = locks.lock("held").expire(LONG).try_acquire().await.unwrap();
    let dropped = locks.lock("dropped").expire(LONG).try_acquire().await.unwrap();
    nodes.fault(StoreFault::Freeze).await;
    drop(dropped);
    let mut shutdown = tokio::spawn(async move { locks.shutdown().await });
    let early = tokio::time::timeout(Duration::from_millis(200), &mut shutdown).await;
    assert!(early.is_err(), "shutdown did not wait");
    nodes.fault(StoreFault::Thaw).await;
    tokio::time::timeout(SOON, shutdown).await.unwrap().unwrap();
    assert_eq!(nodes.locks().await, 0);
    assert!(!held.is_valid());
}

/// A server counts leases by the wall clock, which continues while the process is stopped.
#[tokio::test]
async fn a_lock_that_expires_on_a_stopped_server_is_free_when_it_continues() {
    const LEASE: Duration = Duration::from_secs(2);
    let mut servers = Servers::start(1).await;
    let connect =
        async || builder(servers.urls()).node_timeout(NODE_TIMEOUT).connect().await.unwrap();
    let (first, second) = (connect().await, connect().await);
    let guard = first.lock(KEY).expire(LEASE).try_acquire().await.unwrap();
    let granted = Instant::now();
    // Only the end of the lease may free the lock.
    guard.keep_until_expiry();
    servers[0].freeze();
    eventually("the lease is over", SOON, async || {
        (granted.elapsed() > LEASE.mul_f64(1.1)).then_some(())
    })
    .await;
    servers[0].thaw();
    let guard = second.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(servers.keys().await, [""; 0]);
}
