//! Locks after a failover.

use std::time::{Duration, Instant};

use redlock_core::LockManager;
use redlock_tests::{FailoverGroup, eventually};

use super::{KEY, QUIET, SOON, builder};

const LONG: Duration = Duration::from_secs(60);

async fn granted(locks: &LockManager) -> Duration {
    let begun = Instant::now();
    let guard = eventually("the lock is granted", SOON, async || {
        locks.lock("first").expire(LONG).try_acquire().await.ok()
    });
    guard.await.release().await.unwrap();
    begun.elapsed()
}

/// The new master has the locks that were replicated to it.
#[tokio::test]
async fn locks_go_on_at_the_promoted_server() {
    let _quiet = QUIET.lock().await;
    let group = FailoverGroup::start().await;
    let locks = builder(&group.url()).connect().await.unwrap();
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    granted(&locks).await;
    group.fail_over().await;
    granted(&locks).await;
    guard.extend(LONG).await.unwrap();
    let other = builder(&group.url()).connect().await.unwrap();
    assert!(other.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    guard.release().await.unwrap();
    other.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}
