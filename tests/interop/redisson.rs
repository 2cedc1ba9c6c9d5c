//! A Java process with Redisson's `RLock` and this library exclude and wake each other.

use std::process::Command;
use std::time::Duration;

use redlock_core::{Dialect, LockManager, ReleaseError};
use redlock_tests::{Monitor, Peer, Servers, java, skip};

use super::{MINUTE, assert_fresh, assert_held_for, assert_refused_for, gets_the_lock};
use crate::{LONG, builder, until_it_sleeps};

const KEY: &str = "order:42";

/// Starts a Java process with Redisson. If the JDK or Maven is missing or Redisson cannot be downloaded, skips the test
/// and returns `None`.
pub(super) fn redisson(port: u16) -> Option<Peer> {
    start(java("redisson"), port)
}

fn start(java: Result<Command, String>, port: u16) -> Option<Peer> {
    let mut java = java.inspect_err(|why| skip(why)).ok()?;
    let mut peer = Peer::start(java.args(["RedissonPeer", &port.to_string()]));
    assert_eq!(peer.answer(), "ready");
    Some(peer)
}

/// Starts a server, a manager in the Redisson dialect, and a Java process, which may be missing.
async fn with_redisson() -> Option<(Servers, LockManager, Peer)> {
    let servers = Servers::start(1).await;
    let locks = builder(servers.urls()).dialect(Dialect::Redisson).connect().await.unwrap();
    let java = redisson(servers[0].port())?;
    Some((servers, locks, java))
}

#[tokio::test]
async fn an_rlock_and_we_respect_each_other() {
    let Some((servers, locks, mut java)) = with_redisson().await else { return };
    let server = &servers[0];
    assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "acquired");
    assert_held_for(server, KEY, MINUTE).await;
    assert_refused_for(locks.lock(KEY).try_acquire().await, MINUTE);
    // A lock that is held twice needs two releases.
    assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "acquired");
    assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
    assert!(locks.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();

    // A lease of -1 is Redisson's default lease, which it renews. It is the default of this library, too.
    let default = Duration::from_secs(30);
    assert_eq!(java.ask(&format!("lock {KEY} 0 -1")), "acquired");
    assert_refused_for(locks.lock(KEY).try_acquire().await, default);
    assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    assert_held_for(server, KEY, default).await;
    guard.release().await.unwrap();

    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    assert_eq!(java.ask(&format!("locked {KEY}")), "true");
    assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "refused");
    let seen: u64 = java.ask(&format!("remaining {KEY}")).parse().unwrap();
    assert_fresh(Duration::from_millis(seen), LONG);
    guard.release().await.unwrap();
    assert_eq!(java.ask(&format!("locked {KEY}")), "false");
    assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "acquired");
    assert_held_for(server, KEY, MINUTE).await;
}

/// The sides of Redisson's read-write lock look for the field `mode` in the hash. Without it they enter an `RLock`, also
/// one of Java, and replace its lease.
async fn every_kind_and_we_exclude_each_other(java: Result<Command, String>) {
    let servers = Servers::start(1).await;
    let locks = builder(servers.urls()).dialect(Dialect::Redisson).connect().await.unwrap();
    let Some(mut java) = start(java, servers[0].port()) else { return };
    for kind in ["lock", "read", "write", "fair", "spin", "fenced"] {
        assert_eq!(java.ask(&format!("use {kind}")), kind);
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        assert_eq!(java.ask(&format!("lock {KEY} 0 1000")), "refused", "{kind}");
        assert_held_for(&servers[0], KEY, LONG).await;
        guard.release().await.unwrap();

        assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "acquired", "{kind}");
        assert_refused_for(locks.lock(KEY).try_acquire().await, MINUTE);
        assert_eq!(java.ask(&format!("unlock {KEY}")), "released", "{kind}");
    }
}

#[tokio::test]
async fn every_kind_of_lock_of_redisson_and_we_exclude_each_other() {
    every_kind_and_we_exclude_each_other(java("redisson")).await;
}

mod nightly {
    use redlock_tests::java_with;

    /// Another version than that of the other tests.
    #[tokio::test]
    async fn every_kind_of_an_earlier_redisson_and_we_exclude_each_other() {
        super::every_kind_and_we_exclude_each_other(java_with("redisson", "3.50.0")).await;
    }
}

/// A waiter that is not woken polls, and a Java process that is not woken sleeps until the lease ends. That a message on
/// the channel wakes our waiter is measured in `servers/measured.rs`.
#[tokio::test]
async fn a_release_of_either_side_wakes_the_waiter_of_the_other() {
    let Some((servers, locks, mut java)) = with_redisson().await else { return };
    let mut probe = servers[0].probe().await;
    for (key, channel) in [
        (KEY, "redisson_lock__channel:{order:42}"),
        ("order:{42}", "redisson_lock__channel:order:{42}"),
        ("a{b}c", "redisson_lock__channel:a{b}c"),
    ] {
        assert_eq!(java.ask(&format!("lock {key} 0 300000")), "acquired");
        probe.reset_calls().await;
        let waiting = tokio::spawn(locks.lock(key).expire(LONG).wait_time(LONG).acquire());
        until_it_sleeps(&mut probe, channel).await;
        let mut monitor = Monitor::connect(&servers[0].url()).await.unwrap();
        assert_eq!(java.ask(&format!("unlock {key}")), "released");
        let message = format!("\"publish\" \"{channel}\" \"0\"");
        monitor.until(|line| line.to_lowercase().contains(&message)).await;
        let guard = gets_the_lock(waiting).await;

        probe.reset_calls().await;
        java.order(&format!("lock {key} 300000 60000"));
        until_it_sleeps(&mut probe, channel).await;
        guard.release().await.unwrap();
        assert_eq!(java.answer(), "acquired");
        assert!(locks.lock(key).try_acquire().await.unwrap_err().is_contended());
        assert_eq!(java.ask(&format!("unlock {key}")), "released");
    }
}

/// Only the owner releases.
#[tokio::test]
async fn neither_we_nor_redisson_release_a_lock_of_the_other() {
    let Some((servers, locks, mut java)) = with_redisson().await else { return };
    let late = locks.lock(KEY).expire(Duration::from_secs(2)).try_acquire().await.unwrap();
    assert_eq!(java.ask(&format!("lock {KEY} 60000 300")), "acquired");
    let error = late.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    // The lock of the Java process expires, too, so its release is late.
    let waiting = tokio::spawn(locks.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    let guard = gets_the_lock(waiting).await;
    assert_eq!(java.ask(&format!("unlock {KEY}")), "not owned");
    assert_held_for(&servers[0], KEY, LONG).await;
    guard.release().await.unwrap();
}
