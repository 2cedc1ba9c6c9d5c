//! Readers of one process share a lease, and each of them holds the lock for its own time, in paused time.

use std::sync::Arc;
use std::time::Duration;

use redlock_logs::Logs;
use tokio::time::{Instant, sleep, timeout};

use super::tests::SECOND;
use crate::test_util::TestLocks;
use crate::{LockGuard, LockManager, LockRequest};

const MOMENT: Duration = Duration::from_millis(20);

fn shared(locks: &LockManager) -> LockRequest {
    locks.lock("a").shared()
}

/// Acquires a shared lock that is renewed for as long as it is held.
async fn renewed(locks: &LockManager) -> LockGuard {
    shared(locks).expire(30 * SECOND).renew(true).try_acquire().await.unwrap()
}

/// Returns whether a caller of another process gets the exclusive lock.
async fn is_free(nodes: &TestLocks) -> bool {
    let other = nodes.builder().connect().await.unwrap();
    sleep(MOMENT).await;
    let acquired = other.lock("a").try_acquire().await;
    acquired.is_ok()
}

/// A reader that hangs must not hold the lock for as long as the others renew it.
#[tokio::test(start_paused = true)]
async fn a_reader_loses_the_lock_after_its_own_lease() {
    for is_first in [true, false] {
        let nodes = TestLocks::new(1);
        let locks = nodes.manager();
        let short = || async { shared(&locks).expire(5 * SECOND).try_acquire().await.unwrap() };
        let (short, renewed) = if is_first {
            let short = short().await;
            (short, renewed(&locks).await)
        } else {
            let renewed = renewed(&locks).await;
            (short().await, renewed)
        };
        let begun = Instant::now();
        timeout(60 * SECOND, short.lost()).await.expect("the reader keeps the lock");
        let elapsed = begun.elapsed().as_millis();
        assert!((4900..=5010).contains(&elapsed), "{elapsed} ms, first: {is_first}");
        sleep(60 * SECOND).await;
        assert!(!short.is_valid() && renewed.is_valid());
        let next = shared(&locks).try_acquire().await.unwrap();
        assert!(
            Arc::ptr_eq(next.held().attempt(), renewed.held().attempt()),
            "the next reader does not share the lock"
        );
        drop(next);
        // A late guard of a lost lock does not release the lock of the others.
        drop(short);
        sleep(MOMENT).await;
        assert!(renewed.is_valid() && !is_free(&nodes).await);
        renewed.release().await.unwrap();
        assert!(is_free(&nodes).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_loses_the_lock_one_lease_after_its_longest_hold() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let renewed = renewed(&locks).await;
    let request = shared(&locks).expire(3 * SECOND).renew(true).max_hold(6 * SECOND);
    let bounded = request.try_acquire().await.unwrap();
    let begun = Instant::now();
    timeout(60 * SECOND, bounded.lost()).await.expect("the reader keeps the lock");
    let elapsed = begun.elapsed();
    assert!((6 * SECOND..=9 * SECOND).contains(&elapsed), "{elapsed:?}");
    assert!(renewed.is_valid());
}

/// The renewal of one of them counts for the others.
#[tokio::test(start_paused = true)]
async fn renewed_readers_keep_the_lock() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let readers = [renewed(&locks).await, renewed(&locks).await, renewed(&locks).await];
    for _ in 0..300 {
        sleep(SECOND).await;
        assert!(readers.iter().all(LockGuard::is_valid));
    }
}

/// An extension is counted from its request, as for a lock that nobody shares.
#[tokio::test(start_paused = true)]
async fn a_reader_extends_its_own_lease_beside_a_longer_one() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let renewed = renewed(&locks).await;
    let short = shared(&locks).expire(5 * SECOND).try_acquire().await.unwrap();
    sleep(4 * SECOND).await;
    short.extend(5 * SECOND).await.unwrap();
    sleep(4 * SECOND).await;
    assert!(short.is_valid());
    sleep(SECOND).await;
    assert!(!short.is_valid() && renewed.is_valid());
}

/// Otherwise the guard of a reader that hangs would keep exclusive callers out.
#[tokio::test(start_paused = true)]
async fn a_reader_that_has_lost_the_lock_does_not_keep_it_after_the_others() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let renewed = renewed(&locks).await;
    let short = shared(&locks).expire(5 * SECOND).try_acquire().await.unwrap();
    sleep(6 * SECOND).await;
    renewed.release().await.unwrap();
    assert!(is_free(&nodes).await);
    drop(short);
}

/// The upgrade counts only readers that hold the lock. The guard of another one still exists.
#[tokio::test(start_paused = true)]
async fn the_late_guard_of_a_reader_does_not_release_an_upgraded_lock() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let renewed = renewed(&locks).await;
    let short = shared(&locks).expire(5 * SECOND).try_acquire().await.unwrap();
    sleep(6 * SECOND).await;
    let upgraded = renewed.try_upgrade().await.unwrap();
    drop(short);
    sleep(MOMENT).await;
    assert!(upgraded.is_valid() && !is_free(&nodes).await);
}

#[tokio::test(start_paused = true)]
async fn a_downgraded_lock_ends_after_its_own_lease() {
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let writer = locks.lock("a").expire(5 * SECOND).try_acquire().await.unwrap();
    let downgraded = writer.downgrade().await.unwrap();
    let renewed = renewed(&locks).await;
    sleep(6 * SECOND).await;
    assert!(!downgraded.is_valid() && renewed.is_valid());
}

/// A reader that finds the lease too old extends it. The last holder releases the lock in between.
#[tokio::test(start_paused = true)]
async fn no_loss_is_reported_when_a_reader_extends_a_released_lock() {
    let logs = Logs::collect();
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    for waits in [false, true] {
        let first = renewed(&locks).await;
        sleep(5 * MOMENT).await;
        let attempt = Arc::clone(first.held().attempt());
        let gate = attempt.mode_gate.write().await;
        let request = shared(&locks).expire(30 * SECOND);
        let next = if waits {
            tokio::spawn(request.wait_forever().acquire())
        } else {
            tokio::spawn(request.try_acquire())
        };
        sleep(MOMENT).await;
        first.release().await.unwrap();
        assert!(!next.is_finished(), "the reader has not extended the lease");
        drop(gate);
        next.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(logs.count("", "a lock was lost"), 0, "{:?}", logs.lines());
}

/// The reader that finds it out has not lost anything.
#[tokio::test(start_paused = true)]
async fn a_loss_that_the_next_reader_notices_is_reported_once_for_each_holder() {
    let logs = Logs::collect();
    let nodes = TestLocks::new(1);
    let locks = nodes.manager();
    let holders = [renewed(&locks).await, renewed(&locks).await];
    sleep(5 * MOMENT).await;
    nodes.nodes()[0].forget();
    let next = renewed(&locks).await;
    assert!(holders.iter().all(|holder| !holder.is_valid()) && next.is_valid());
    assert_eq!(logs.count("", "a lock was lost"), holders.len(), "{:?}", logs.lines());
}
