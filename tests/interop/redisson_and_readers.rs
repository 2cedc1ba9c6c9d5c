//! Redisson's `RLock` and both sides of its `RReadWriteLock` beside shared locks: neither side gets its lock while the
//! other one holds.

use std::collections::BTreeMap;

use redlock_core::{Dialect, LockError, LockManager, LockRequest};
use redlock_tests::{Peer, Servers, eventually};

use super::redisson::redisson;
use super::{MINUTE, assert_held_for, entries, gets_the_lock};
use crate::{LONG, SOON, connect, no_key_is_left, start};

/// Redisson's locks.
const KINDS: [&str; 3] = ["lock", "read", "write"];
const KEY: &str = "catalogue";

/// Starts a server, two managers and a Java process, which may be missing.
async fn with_redisson() -> Option<(Servers, [LockManager; 2], Peer)> {
    let (servers, locks) = start(1).await;
    let other = connect(servers.urls()).await;
    let java = redisson(servers[0].port())?;
    Some((servers, [locks, other], java))
}

fn shared(locks: &LockManager) -> LockRequest {
    locks.lock(KEY).shared(true).expire(LONG)
}

/// Redisson reports the type of the key, as beside an exclusive lock of this library, and does not wait. It changes
/// nothing, also at a key with the mark of a waiting writer.
#[tokio::test]
async fn redisson_gets_an_error_beside_readers() {
    let Some((servers, [one, two], mut java)) = with_redisson().await else { return };
    let mut probe = servers[0].probe().await;
    for kind in KINDS {
        assert_eq!(java.ask(&format!("use {kind}")), kind);
        let reader = shared(&one).try_acquire().await.unwrap();
        let waiting = tokio::spawn(two.lock(KEY).expire(LONG).wait_time(LONG).acquire());
        eventually("the writer has set its mark", SOON, async || {
            (entries(&mut probe, KEY).await == "r: shared w:").then_some(())
        })
        .await;
        for order in ["lock catalogue 0 60000", "lock catalogue 5000 60000", "unlock catalogue"] {
            assert_eq!(java.ask(order), "WRONGTYPE", "{kind} {order}");
            assert!(entries(&mut probe, KEY).await.starts_with("r: shared"), "{kind} {order}");
        }
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
    for kind in KINDS {
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

/// The `RLock` of this library does not know the value of a shared lock, as the one of Java does not.
#[tokio::test]
async fn readers_are_foreign_to_an_rlock_of_this_library() {
    let (servers, locks) = start(1).await;
    let reader = shared(&locks).try_acquire().await.unwrap();
    let rlock = || locks.lock(KEY).dialect(Dialect::Redisson);
    is_foreign(rlock().wait_time(LONG)).await;
    reader.release().await.unwrap();
    let rlock = rlock().try_acquire().await.unwrap();
    is_foreign(shared(&locks).wait_time(LONG)).await;
    rlock.release().await.unwrap();
    no_key_is_left(&servers).await;
}
