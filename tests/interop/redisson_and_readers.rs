//! Redisson's `RLock` and both sides of its `RReadWriteLock` beside shared locks: each side is refused while the other
//! one holds.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_core::{Dialect, LockError, LockManager, LockRequest};
use redlock_tests::{Peer, Probe, Servers, eventually};

use super::redisson::redisson;
use super::{MINUTE, assert_held_for, entries, gets_the_lock};
use crate::{LONG, SOON, connect, no_key_is_left, start, until_it_sleeps};

/// A lease whose end a test can wait for, but long enough to be renewed on a busy machine.
const SHORT: Duration = Duration::from_secs(2);
/// Redisson's locks, and the channels on which they are notified of a release.
const KINDS: [(&str, &str); 3] = [
    ("lock", "redisson_lock__channel:{catalogue}"),
    ("read", "redisson_rwlock:{catalogue}"),
    ("write", "redisson_rwlock:{catalogue}"),
];
const KEY: &str = "catalogue";

/// Starts a server, two managers and a Java process, which may be missing.
async fn with_redisson() -> Option<(Servers, [LockManager; 2], Peer)> {
    let (servers, locks) = start(1).await;
    let other = connect(servers.urls()).await;
    let java = redisson(servers[0].port())?;
    Some((servers, [locks, other], java))
}

fn shared(locks: &LockManager) -> LockRequest {
    locks.lock(KEY).shared().expire(SHORT)
}

/// Redisson neither gets its lock nor changes ours.
async fn is_refused(java: &mut Peer, probe: &mut Probe, ours: &str) {
    assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "refused");
    assert_eq!(java.ask(&format!("unlock {KEY}")), "not owned");
    assert_eq!(entries(probe, KEY).await, ours);
}

async fn refusals(probe: &mut Probe, count: u64) {
    eventually("Redisson is refused again", SOON, async || {
        (probe.calls().await.get("pttl") >= Some(&count)).then_some(())
    })
    .await;
}

// The leases are renewed while the test blocks its thread to wait for an answer.
#[tokio::test(flavor = "multi_thread")]
async fn redisson_waits_until_the_last_reader_releases() {
    let Some((servers, [one, two], mut java)) = with_redisson().await else { return };
    let mut probe = servers[0].probe().await;
    for (kind, channel) in KINDS {
        assert_eq!(java.ask(&format!("use {kind}")), kind);
        let first = shared(&one).renew(true).try_acquire().await.unwrap();
        is_refused(&mut java, &mut probe, "mode=shared r:").await;
        let last = shared(&two).renew(true).try_acquire().await.unwrap();
        is_refused(&mut java, &mut probe, "mode=shared r: r:").await;

        probe.reset_calls().await;
        java.order(&format!("lock {KEY} -1 60000"));
        until_it_sleeps(&mut probe, channel).await;
        first.release().await.unwrap();
        // Redisson asks again at the end of the time to live that it has read.
        probe.reset_calls().await;
        refusals(&mut probe, 2).await;
        assert_eq!(entries(&mut probe, KEY).await, "mode=shared r:");
        last.release().await.unwrap();
        assert_eq!(java.answer(), "acquired");
        assert_held_for(&servers[0], KEY, MINUTE).await;
        assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
    }
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn redisson_waits_until_the_leases_of_all_readers_end() {
    let Some((servers, [one, two], mut java)) = with_redisson().await else { return };
    let mut probe = servers[0].probe().await;
    for (kind, _) in KINDS {
        assert_eq!(java.ask(&format!("use {kind}")), kind);
        // The first order takes long, because Java loads the classes for it.
        assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "acquired");
        assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
        probe.reset_calls().await;
        let short = shared(&one).try_acquire().await.unwrap();
        let long = shared(&two).expire(SHORT * 2).try_acquire().await.unwrap();
        java.order(&format!("lock {KEY} -1 60000"));
        assert_eq!(java.answer(), "acquired");
        refusals(&mut probe, 2).await;
        assert!(!short.is_valid() && !long.is_valid(), "{kind}");
        short.release().await.unwrap_err();
        long.release().await.unwrap_err();
        assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
    }
    no_key_is_left(&servers).await;
}

/// A writer that waits for readers has a mark at the key, which refuses Redisson, too.
#[tokio::test]
async fn redisson_waits_for_readers_and_for_the_writer_behind_them() {
    let Some((servers, [one, two], mut java)) = with_redisson().await else { return };
    let mut probe = servers[0].probe().await;
    for (kind, _) in KINDS {
        assert_eq!(java.ask(&format!("use {kind}")), kind);
        let reader = shared(&one).expire(LONG).try_acquire().await.unwrap();
        let waiting = tokio::spawn(two.lock(KEY).expire(LONG).wait_time(LONG).acquire());
        eventually("the writer has set its mark", SOON, async || {
            (entries(&mut probe, KEY).await == "mode=shared r: w:").then_some(())
        })
        .await;
        is_refused(&mut java, &mut probe, "mode=shared r: w:").await;
        reader.release().await.unwrap();
        gets_the_lock(waiting).await.release().await.unwrap();
        assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "acquired");
        assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
    }
    no_key_is_left(&servers).await;
}

async fn is_foreign(request: LockRequest) {
    // A foreign key is never waited for.
    let attempt = tokio::time::timeout(SOON, request.acquire()).await.unwrap();
    let error = attempt.unwrap_err();
    assert!(matches!(error, LockError::ForeignKey { .. }), "{error:?}");
}

#[tokio::test]
async fn readers_and_writers_leave_a_lock_of_redisson_alone() {
    let Some((servers, [one, _], mut java)) = with_redisson().await else { return };
    let mut probe = servers[0].probe().await;
    for (kind, _) in KINDS {
        assert_eq!(java.ask(&format!("use {kind}")), kind);
        assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "acquired");
        let held: BTreeMap<String, String> = probe.command(["HGETALL", KEY]).await;
        let mut keys = servers.keys().await;
        keys.sort();
        for request in [
            shared(&one),
            shared(&one).wait_time(LONG),
            one.lock(KEY),
            one.lock(KEY).wait_time(LONG),
            one.lock(KEY).permits(2),
            one.lock(KEY).permits(2).wait_time(LONG),
        ] {
            is_foreign(request).await;
            let after: BTreeMap<String, String> = probe.command(["HGETALL", KEY]).await;
            assert_eq!(after, held, "{kind}");
            assert_held_for(&servers[0], KEY, MINUTE).await;
        }
        let mut after = servers.keys().await;
        after.sort();
        assert_eq!(after, keys, "{kind}");
        assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
        shared(&one).try_acquire().await.unwrap().release().await.unwrap();
    }
    no_key_is_left(&servers).await;
}

/// The `RLock` of this library is refused by readers as the one of Java is.
#[tokio::test]
async fn an_rlock_of_this_library_is_refused_beside_readers() {
    let (servers, locks) = start(1).await;
    let reader = shared(&locks).expire(LONG).try_acquire().await.unwrap();
    let rlock = locks.lock(KEY).dialect(Dialect::Redisson);
    let error = rlock.try_acquire().await.unwrap_err();
    assert!(error.is_contended(), "{error:?}");
    reader.release().await.unwrap();
    let rlock = locks.lock(KEY).dialect(Dialect::Redisson).try_acquire().await.unwrap();
    is_foreign(shared(&locks).wait_time(LONG)).await;
    rlock.release().await.unwrap();
    no_key_is_left(&servers).await;
}
