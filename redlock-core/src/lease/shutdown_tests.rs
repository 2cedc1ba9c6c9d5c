//! The releases of a shutdown, and the time for which it waits, in paused time.

use std::time::Duration;

use futures_util::FutureExt;
use redlock_logs::Logs;
use tokio::time::{Instant, sleep};

use super::tests::{SECOND, UP, manager, set, settle};
use crate::node::fake::FakeMode;
use crate::{LockError, LockState};

const SLOW: FakeMode = FakeMode::Up(Duration::from_millis(20));

#[tokio::test(start_paused = true)]
async fn an_acquisition_that_completes_during_a_shutdown_is_released() {
    let (locks, nodes) = manager(3);
    set(&nodes, &[FakeMode::Up(Duration::from_millis(10)); 3]);
    let acquiring = locks.lock("a").try_acquire();
    let (acquired, ()) = tokio::join!(acquiring, locks.shutdown());
    assert!(matches!(acquired, Err(LockError::ShutDown)), "{acquired:?}");
    sleep(SECOND).await;
    assert!(nodes.iter().all(|node| !node.is_held()));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_held_locks_and_refuses_new_requests() {
    let (locks, nodes) = manager(3);
    let renewed = locks.lock("a").try_acquire().await.unwrap();
    let lost = renewed.lost();
    locks.clone().shutdown().await;
    assert!(nodes.iter().all(|node| !node.is_held()));
    assert!(!renewed.is_valid());
    lost.now_or_never().expect("the holder is notified");
    assert!(matches!(locks.lock("b").try_acquire().await, Err(LockError::ShutDown)));
    drop(renewed);
    locks.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_forever() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").try_acquire().await.unwrap();
    set(&nodes, &[UP, FakeMode::Down, FakeMode::Frozen]);
    drop(guard);
    let (start, logs) = (Instant::now(), Logs::collect());
    locks.shutdown().await;
    assert_eq!(start.elapsed(), SECOND, "the shutdown waits for the connect timeout");
    let nodes = "nodes=node-1 up, node-2 down: not connected: ";
    assert_eq!(logs.count("WARN", nodes), 1, "{:?}", logs.lines());
}

/// The guard is dropped or released, and the nodes confirm the release at once or only when it is
/// repeated.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_a_pending_release() {
    for (dropped, others) in
        [(true, SLOW), (false, SLOW), (true, FakeMode::Broken), (false, FakeMode::Broken)]
    {
        let (locks, nodes) = manager(3);
        let guard = locks.lock("a").try_acquire().await.unwrap();
        set(&nodes, &[SLOW, others, others]);
        if dropped {
            drop(guard);
        } else {
            tokio::spawn(guard.release());
        }
        settle().await;
        set(&nodes, &[SLOW; 3]);
        locks.shutdown().await;
        let held: Vec<_> = nodes.iter().map(|node| node.is_held()).collect();
        assert_eq!(held, [false; 3], "dropped: {dropped}, {others:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_a_lock_whose_renewal_is_in_flight() {
    let (locks, nodes) = manager(1);
    let guard = locks.lock("a").expire(3 * SECOND).renew(true).try_acquire().await.unwrap();
    nodes[0].set_reports_silence(false);
    set(&nodes, &[FakeMode::Frozen]);
    // The renewal is due 0.9 s to 1 s after the acquisition.
    sleep(SECOND * 3 / 2).await;
    let shutdown = tokio::spawn(async move { locks.shutdown().await });
    settle().await;
    assert_eq!(guard.state(), LockState::Lost);
    set(&nodes, &[UP]);
    shutdown.await.unwrap();
    assert_eq!((nodes[0].is_held(), nodes[0].releases()), (false, 1));
}
