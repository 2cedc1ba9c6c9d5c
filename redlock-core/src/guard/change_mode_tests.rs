//! Changes of the mode of a held lock.

#[cfg(feature = "test-util")]
use std::sync::Arc;
#[cfg(feature = "test-util")]
use std::time::Duration;

#[cfg(feature = "test-util")]
use futures_util::FutureExt;
#[cfg(feature = "test-util")]
use tokio::time::timeout;

use super::LockHandle;
#[cfg(feature = "test-util")]
use super::LockState;
#[cfg(feature = "test-util")]
use crate::LockManagerBuilder;
#[cfg(feature = "test-util")]
use crate::clock::fake::FakeClock;
use crate::error::HoldError;
#[cfg(feature = "test-util")]
use crate::node::Node;
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
        let renewal = held.attempt().downgrade_gate.read().await;
        let mut downgrade = Box::pin(writer.downgrade());
        assert!(futures_util::poll!(&mut downgrade).is_pending());
        let again = locks.lock(KEY).reentrant(true).try_acquire().await.unwrap();
        drop(renewal);
        let error = downgrade.await.unwrap_err();
        assert!(matches!(error, HoldError::InvalidOption(_)), "{error:?}");
        assert!(!again.is_shared() && again.is_valid());
        drop(again);
        writer.downgrade().await.unwrap();
        assert!(writer.is_shared());
        writer.downgrade().await.unwrap();
        let again = locks.lock(KEY).reentrant(true).try_acquire().await;
        assert!(matches!(again, Err(LockError::AlreadyHeld { .. })), "{again:?}");
    };
    scope(body).await;
}

/// A caller may stop polling the future of a downgrade, which keeps the extension out.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn an_extension_does_not_wait_longer_than_the_lease_for_a_downgrade() {
    let test = TestLocks::new(1);
    let writer = test.manager().lock(KEY).expire(SECOND).try_acquire().await.unwrap();
    let LockHandle { held, .. } = writer.handle();
    let _downgrade = held.attempt().downgrade_gate.write().await;
    let extension = timeout(60 * SECOND, writer.extend(SECOND)).await;
    let error = extension.expect("the extension ends with the lease").unwrap_err();
    assert!(matches!(error, HoldError::Lost { .. }), "{error:?}");
}

/// The second one waits at the gate for the first, and asks no node.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn two_downgrades_at_once_are_one() {
    let test = TestLocks::new(1);
    let writer = test.manager().lock(KEY).expire(60 * SECOND).try_acquire().await.unwrap();
    test.nodes()[0].delay(SECOND);
    let begun = tokio::time::Instant::now();
    let (first, second) = tokio::join!(writer.downgrade(), writer.downgrade());
    first.unwrap();
    second.unwrap();
    assert_eq!(begun.elapsed(), SECOND);
    assert!(writer.is_shared() && writer.is_valid());
}

/// A renewal is at the gate, and does not end.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_downgrade_waits_at_most_until_the_lease_is_over() {
    let test = TestLocks::new(1);
    let writer = test.manager().lock(KEY).expire(SECOND).try_acquire().await.unwrap();
    let LockHandle { held, .. } = writer.handle();
    let _renewal = held.attempt().downgrade_gate.read().await;
    let downgrade = timeout(60 * SECOND, writer.downgrade()).await;
    let error = downgrade.expect("the downgrade ends with the lease").unwrap_err();
    assert!(matches!(error, HoldError::Lost { .. }), "{error:?}");
    assert!(!writer.is_shared());
}

/// The lock counts as shared from the first poll on.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_dropped_downgrade_wakes_the_readers() {
    let test = TestLocks::new(1);
    let (locks, node) = (test.manager(), &test.nodes()[0]);
    let writer = locks.lock(KEY).expire(600 * SECOND).try_acquire().await.unwrap();
    let mut reader = Box::pin(locks.lock(KEY).shared().wait_forever().acquire());
    assert!(futures_util::poll!(&mut reader).is_pending());
    node.delay(SECOND);
    assert!(writer.downgrade().now_or_never().is_none());
    assert!(writer.is_shared());
    node.recover();
    let reader = timeout(60 * SECOND, reader).await.expect("the reader was woken");
    assert!(reader.unwrap().is_shared());
}

#[cfg(feature = "test-util")]
async fn is_refused(locks: &LockManager) -> bool {
    locks.lock(KEY).shared().try_acquire().await.is_err()
}

/// The first node still has the exclusive lock. Each later operation of the reader covers it.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_reader_extends_and_releases_the_lock_on_a_node_that_has_missed_the_downgrade() {
    let test = TestLocks::new(3);
    let (locks, other) = (test.manager(), test.builder().connect().await.unwrap());
    let [first, second, third] = test.nodes() else { panic!("three nodes") };
    let writer = locks.lock(KEY).expire(60 * SECOND).try_acquire().await.unwrap();
    first.fail();
    writer.downgrade().await.unwrap();
    first.recover();
    second.fail();
    assert!(is_refused(&other).await, "the first node shares the lock");
    writer.extend(600 * SECOND).await.unwrap();
    assert!(first.time_to_live(KEY) > Some(500 * SECOND));
    second.recover();
    assert!(!is_refused(&other).await);
    writer.release().await.unwrap();
    assert!(first.is_empty() && second.is_empty() && third.is_empty());
}

/// A handle that was taken before knows of it, too.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_denied_downgrade_is_a_reported_loss() {
    let test = TestLocks::new(1);
    let writer = test.manager().lock(KEY).expire(60 * SECOND).try_acquire().await.unwrap();
    let handle = writer.handle();
    test.nodes()[0].forget();
    let error = writer.downgrade().await.unwrap_err();
    assert!(matches!(error, HoldError::Lost { .. }), "{error:?}");
    assert_eq!(handle.state(), LockState::Lost);
    handle.lost().await;
}

/// The node replies after the end of the lease.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_downgrade_whose_lease_ends_during_its_round_is_a_loss() {
    let test = TestLocks::new(1);
    let writer = test.manager().lock(KEY).expire(SECOND).try_acquire().await.unwrap();
    test.nodes()[0].delay(60 * SECOND);
    let error = writer.downgrade().await.unwrap_err();
    assert!(matches!(error, HoldError::Lost { .. }), "{error:?}");
    assert_eq!(writer.state(), LockState::Lost);
}

/// The machine sleeps while the reply is on its way.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_downgrade_that_is_confirmed_after_a_suspension_past_the_lease_is_a_loss() {
    let (test, clock) = (TestLocks::new(1), FakeClock::default());
    let node = &test.nodes()[0];
    let nodes = vec![Arc::new(node.clone()) as Arc<dyn Node>];
    let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(clock.clone()));
    let writer = locks.lock(KEY).expire(5 * SECOND).try_acquire().await.unwrap();
    node.delay(Duration::from_millis(10));
    let mut downgrade = Box::pin(writer.downgrade());
    assert!(futures_util::poll!(&mut downgrade).is_pending());
    clock.advance(6 * SECOND);
    let error = downgrade.await.unwrap_err();
    assert!(matches!(error, HoldError::Lost { .. }), "{error:?}");
}
