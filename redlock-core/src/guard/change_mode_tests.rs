//! Changes of the mode of a held lock.

#[cfg(feature = "test-util")]
use std::time::Duration;

use super::{DowngradeError, LockHandle};
use crate::request::scope::scope;
#[cfg(feature = "test-util")]
use crate::test_util::TestLocks;
use crate::{LockError, LockManager};

const KEY: &str = "catalogue";
#[cfg(feature = "test-util")]
const SECOND: Duration = Duration::from_secs(1);

/// The guard joins while the downgrade waits for a renewal.
#[tokio::test]
async fn a_guard_that_joins_before_the_downgrade_keeps_the_lock_exclusive() {
    let locks = LockManager::in_memory();
    let body = async {
        let writer = locks.lock(KEY).try_acquire().await.unwrap();
        let LockHandle { held, .. } = writer.handle();
        let renewal = held.attempt().mode_gate.read().await;
        let mut downgrade = Box::pin(writer.downgrade());
        assert!(futures_util::poll!(&mut downgrade).is_pending());
        let again = locks.lock(KEY).reentrant(true).try_acquire().await.unwrap();
        drop(renewal);
        let error = downgrade.await.unwrap_err();
        assert!(matches!(error, DowngradeError::InUse { .. }), "{error:?}");
        assert!(!again.is_shared() && again.is_valid());
        let writer = error.into_guard().unwrap();
        drop(again);
        let reader = writer.downgrade().await.unwrap();
        assert!(reader.is_shared());
        let again = locks.lock(KEY).reentrant(true).try_acquire().await;
        assert!(matches!(again, Err(LockError::AlreadyHeld { .. })), "{again:?}");
    };
    scope(body).await;
}

#[cfg(feature = "test-util")]
async fn is_refused(locks: &LockManager) -> bool {
    locks.lock(KEY).shared().try_acquire().await.is_err()
}

/// One majority grants the upgrade, another one has granted the last extension.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn an_upgraded_lock_stays_for_the_whole_lease_on_the_nodes_that_grant_it() {
    let test = TestLocks::new(3);
    let [one, two] = [test.manager(), test.builder().connect().await.unwrap()];
    let [first, _, third] = test.nodes() else { panic!("three nodes") };
    let reader = one.lock(KEY).shared().expire(SECOND).try_acquire().await.unwrap();
    third.fail();
    reader.extend(60 * SECOND).await.unwrap();
    third.recover();
    first.fail();
    let writer = reader.try_upgrade().await.unwrap();
    first.recover();
    test.clock().advance(5 * SECOND).await;
    assert!(writer.is_valid() && !writer.is_shared());
    assert!(is_refused(&two).await, "a reader entered beside an exclusive holder");
}

/// A node that has granted an upgrade without a quorum still grants the next one.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn an_upgrade_succeeds_after_one_that_reached_a_minority() {
    let test = TestLocks::new(3);
    let locks = test.manager();
    let reader = locks.lock(KEY).shared().expire(60 * SECOND).try_acquire().await.unwrap();
    let [first, second, third] = test.nodes() else { panic!("three nodes") };
    for failed in [second, third] {
        failed.fail();
    }
    let error = reader.try_upgrade().await.unwrap_err();
    for failed in [second, third] {
        failed.recover();
    }
    first.fail();
    let reader = error.into_guard().unwrap();
    let writer = reader.try_upgrade().await.unwrap();
    first.recover();
    let reader = writer.downgrade().await.unwrap();
    reader.try_upgrade().await.unwrap().release().await.unwrap();
}

/// A node that has granted an upgrade without a quorum would refuse readers until the lock is released.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_failed_upgrade_leaves_no_node_exclusive() {
    let test = TestLocks::new(3);
    let (locks, other) = (test.manager(), test.builder().connect().await.unwrap());
    let [_, second, third] = test.nodes() else { panic!("three nodes") };
    let reader = locks.lock(KEY).shared().expire(60 * SECOND).try_acquire().await.unwrap();
    for failed in [second, third] {
        failed.fail();
    }
    let error = reader.try_upgrade().await.unwrap_err();
    second.recover();
    assert!(!is_refused(&other).await, "the first node refuses readers");
    assert!(error.into_guard().unwrap().is_shared());
}

/// A node that has missed a downgrade still holds the exclusive lock, with the token of the upgrade before.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn an_upgrade_succeeds_with_a_node_that_has_missed_the_downgrade() {
    let test = TestLocks::new(3);
    let (locks, other) = (test.manager(), test.builder().connect().await.unwrap());
    let [first, second, _] = test.nodes() else { panic!("three nodes") };
    let mut writer = locks.lock(KEY).expire(60 * SECOND).try_acquire().await.unwrap();
    for _ in 0..3 {
        first.fail();
        let reader = writer.downgrade().await.unwrap();
        first.recover();
        second.fail();
        writer = reader.try_upgrade().await.unwrap();
        second.recover();
        assert!(is_refused(&other).await);
    }
    second.fail();
    let reader = writer.downgrade().await.unwrap();
    other.lock(KEY).shared().try_acquire().await.unwrap().release().await.unwrap();
    second.recover();
    reader.release().await.unwrap();
}
