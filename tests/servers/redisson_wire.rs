//! The Redisson dialect as the servers see it, tested without Redisson.

use futures_util::FutureExt as _;
use redlock_core::{Dialect, ForeignKind, LockError, LockManager, LockRequest, Vote};

use super::{LONG, SOON, builder, start};

const KEY: &str = "order:42";

fn redisson(locks: &LockManager, key: &str) -> LockRequest {
    locks.lock(key).expire(LONG).dialect(Dialect::Redisson)
}

/// Checks that an attempt is refused at once, although it may wait: the other dialect's release would not wake it.
async fn is_foreign(request: LockRequest) {
    let attempt = tokio::time::timeout(SOON, request.wait_time(LONG).acquire()).await;
    let error = attempt.unwrap().unwrap_err();
    let LockError::ForeignKey { votes, .. } = &error else { panic!("{error}") };
    let is_wrong_type =
        |(_, vote): (_, Option<&Vote>)| vote == Some(&Vote::foreign(ForeignKind::WrongType));
    assert!(votes.iter().any(is_wrong_type), "{error}");
    let diagnostics = error.diagnostics().to_string();
    assert!(diagnostics.contains("perhaps a lock in another dialect"), "{diagnostics}");
}

#[tokio::test]
async fn a_lock_of_the_other_dialect_is_foreign() {
    let (_servers, locks) = start(3).await;
    let plain = || locks.lock(KEY).expire(LONG);
    let guard = redisson(&locks, KEY).try_acquire().await.unwrap();
    is_foreign(plain()).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();

    let guard = plain().try_acquire().await.unwrap();
    is_foreign(redisson(&locks, KEY)).await;
    guard.extend(LONG * 2).await.unwrap();
    guard.release().await.unwrap();
    redisson(&locks, KEY).try_acquire().await.unwrap().release().await.unwrap();
}

/// Two managers in one process do not know each other's locks: only the holder's own manager refuses without
/// a round trip.
#[tokio::test]
async fn a_request_overrides_the_dialect_of_its_manager() {
    let (servers, locks) = start(1).await;
    let java_like = builder(servers.urls()).dialect(Dialect::Redisson).connect().await.unwrap();
    let mut probe = servers[0].probe().await;
    let one = java_like.lock("hash").try_acquire().await.unwrap();
    let two = java_like.lock("string").dialect(Dialect::Plain).try_acquire().await.unwrap();
    for kind in ["hash", "string"] {
        assert_eq!(probe.command::<String>(["TYPE", kind]).await, kind);
    }
    assert!(redisson(&locks, "hash").try_acquire().await.unwrap_err().is_contended());
    assert!(locks.lock("string").try_acquire().await.unwrap_err().is_contended());
    let refused = redisson(&java_like, "hash").try_acquire().now_or_never();
    assert!(refused.expect("without a round trip").unwrap_err().is_contended());
    one.release().await.unwrap();
    two.release().await.unwrap();
}
