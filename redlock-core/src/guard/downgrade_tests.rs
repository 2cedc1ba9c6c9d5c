//! Changes of the mode of a held lock.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "test-util")]
use futures_util::FutureExt;
use tokio::sync::mpsc::UnboundedReceiver;
#[cfg(feature = "test-util")]
use tokio::time::timeout;

use super::LockState;

#[cfg(feature = "test-util")]
use crate::clock::fake::FakeClock;
use crate::clock::fake::RuntimeClock;
use crate::error::HoldError;
use crate::node::Node;
use crate::node::deferring::{DeferringNode, Sent};
use crate::request::scope::scope;
#[cfg(feature = "test-util")]
use crate::test_util::TestLocks;
use crate::{Dialect, LockError, LockGuard, LockManager, LockManagerBuilder, MemoryNode};

const KEY: &str = "catalogue";
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_guard_that_joins_before_the_downgrade_keeps_the_lock_exclusive() {
    let locks = LockManager::in_memory();
    let body = async {
        let writer = locks.lock(KEY).try_acquire().await.unwrap();
        let again = locks.lock(KEY).reentrant(true).try_acquire().await.unwrap();
        let error = writer.downgrade().await.unwrap_err();
        assert!(matches!(error, HoldError::InvalidOption(_)), "{error:?}");
        assert!(!again.is_shared() && again.is_valid());
        drop(again);
        writer.downgrade().await.unwrap();
        assert!(writer.is_shared());
        let again = locks.lock(KEY).reentrant(true).try_acquire().await;
        assert!(matches!(again, Err(LockError::AlreadyHeld { .. })), "{again:?}");
        let reader = locks.lock(KEY).shared(true).try_acquire().await.unwrap();
        writer.downgrade().await.unwrap();
        assert!(reader.is_shared() && writer.is_shared());
    };
    scope(body).await;
}

/// The node executes the two in one order or the other. An extension of the exclusive lock finds a shared one, and an
/// extension of the shared lock finds an exclusive one.
#[tokio::test]
async fn an_extension_and_a_downgrade_overtake_each_other() {
    for extension_is_sent_first in [true, false] {
        let (mut node, mut sent) = DeferringNode::new();
        (node.capabilities.ordered, node.capabilities.shared) = (true, true);
        let store = node.store.clone();
        let locks = LockManager::builder().node(node).connect().await.unwrap();
        let mut acquisition = Box::pin(locks.lock(KEY).expire(60 * SECOND).try_acquire());
        assert!(futures_util::poll!(&mut acquisition).is_pending());
        sent.recv().await.unwrap().execute();
        let writer = acquisition.await.unwrap();

        let mut extension = Box::pin(writer.extend(600 * SECOND));
        let mut downgrade = Box::pin(writer.downgrade());
        if extension_is_sent_first {
            assert!(futures_util::poll!(&mut extension).is_pending());
        }
        assert!(futures_util::poll!(&mut downgrade).is_pending());
        assert!(futures_util::poll!(&mut extension).is_pending());
        let (first, second) = (sent.recv().await.unwrap(), sent.recv().await.unwrap());
        second.execute();
        first.execute();
        let server = async {
            while let Some(op) = sent.recv().await {
                op.execute();
            }
        };
        let both = async { tokio::join!(extension, downgrade) };
        let (extended, downgraded) = tokio::select! {
            both = both => both,
            () = server => unreachable!("the node has the sender"),
        };
        extended.unwrap();
        downgraded.unwrap();
        assert!(writer.is_shared() && writer.state() == LockState::Held);
        assert!(store.time_to_live(KEY) > Some(500 * SECOND));
    }
}

/// Returns a manager with nodes whose operations the test executes, and the operations. All of them have a lock of it.
async fn deferring(
    count: usize,
    min_hold: Duration,
) -> (Vec<UnboundedReceiver<Sent>>, Vec<MemoryNode>, LockGuard) {
    let (mut nodes, mut stores, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let (mut node, operations) = DeferringNode::new();
        (node.capabilities.ordered, node.capabilities.shared) = (true, true);
        stores.push(node.store.clone());
        sent.push(operations);
        nodes.push(Arc::new(node) as Arc<dyn Node>);
    }
    let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()));
    let request = locks.lock(KEY).expire(60 * SECOND).min_hold(min_hold);
    let acquisition = tokio::spawn(request.try_acquire());
    for sent in &mut sent {
        sent.recv().await.unwrap().execute();
    }
    // The guard is dropped first, and sends its release.
    (sent, stores, acquisition.await.unwrap().unwrap())
}

/// The reply to the overtaken extension comes after the release, which leaves the lock for its minimum hold time.
#[tokio::test(start_paused = true)]
async fn an_extension_that_a_downgrade_has_overtaken_does_not_follow_the_release() {
    let (mut sent, stores, writer) = deferring(1, 5 * SECOND).await;
    let handle = writer.handle();
    let extension = tokio::spawn(async move { handle.extend(600 * SECOND).await });
    let extend = sent[0].recv().await.unwrap();
    let mut downgrade = Box::pin(writer.downgrade());
    assert!(futures_util::poll!(&mut downgrade).is_pending());
    sent[0].recv().await.unwrap().execute();
    downgrade.await.unwrap();
    let reply = extend.execute_and_hold();
    drop(writer);
    sent[0].recv().await.unwrap().execute();
    reply();
    extension.await.unwrap().unwrap_err();
    assert!(sent[0].try_recv().is_err(), "the extension is repeated");
    assert!(stores[0].time_to_live(KEY) <= Some(5 * SECOND));
}

/// One of three nodes is silent, one has denied the extension that a downgrade has overtaken, and one has granted it.
#[tokio::test(start_paused = true)]
async fn an_extension_that_a_downgrade_has_overtaken_on_one_node_is_repeated() {
    let (mut sent, _, writer) = deferring(3, Duration::ZERO).await;
    let handle = writer.handle();
    let extension = tokio::spawn(async move { handle.extend(600 * SECOND).await });
    let mut first = vec![sent[0].recv().await.unwrap(), sent[1].recv().await.unwrap()];
    let mut downgrade = Box::pin(writer.downgrade());
    assert!(futures_util::poll!(&mut downgrade).is_pending());
    let (there, here) = (first.pop().unwrap(), first.pop().unwrap());
    there.execute();
    for sent in &mut sent[..2] {
        sent.recv().await.unwrap().execute();
    }
    here.execute();
    downgrade.await.unwrap();
    for mut sent in sent.drain(..2) {
        tokio::spawn(async move {
            while let Some(operation) = sent.recv().await {
                operation.execute();
            }
        });
    }
    extension.await.unwrap().unwrap();
    assert_eq!(writer.state(), LockState::Held);
}

#[tokio::test]
async fn a_lock_in_a_dialect_without_shared_locks_stays_exclusive() {
    let locks = LockManager::in_memory();
    let writer = locks.lock(KEY).dialect(Dialect::Redisson).try_acquire().await.unwrap();
    let error = writer.downgrade().await.unwrap_err();
    assert!(matches!(error, HoldError::InvalidOption(_)), "{error:?}");
    assert!(writer.is_valid() && !writer.is_shared());
    writer.extend(60 * SECOND).await.unwrap();
    writer.release().await.unwrap();
}

#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_downgrade_that_was_not_confirmed_may_be_repeated() {
    let test = TestLocks::new(1);
    let (locks, node) = (test.manager(), &test.nodes()[0]);
    let writer = locks.lock(KEY).expire(600 * SECOND).try_acquire().await.unwrap();
    node.fail();
    let error = writer.downgrade().await.unwrap_err();
    assert!(matches!(error, HoldError::Unavailable { .. }), "{error:?}");
    node.recover();
    let other = test.builder().connect().await.unwrap();
    assert!(is_refused(&other).await, "the node has not executed the downgrade");
    writer.downgrade().await.unwrap();
    assert!(!is_refused(&other).await);
}

/// The lock counts as shared from the first poll on.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_dropped_downgrade_wakes_the_readers() {
    let test = TestLocks::new(1);
    let (locks, node) = (test.manager(), &test.nodes()[0]);
    let writer = locks.lock(KEY).expire(600 * SECOND).try_acquire().await.unwrap();
    let mut reader = Box::pin(locks.lock(KEY).shared(true).wait_forever().acquire());
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
    locks.lock(KEY).shared(true).try_acquire().await.is_err()
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
    assert!(matches!(error, HoldError::Lost(_)), "{error:?}");
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
    assert!(matches!(error, HoldError::Lost(_)), "{error:?}");
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
    assert!(matches!(error, HoldError::Lost(_)), "{error:?}");
}
