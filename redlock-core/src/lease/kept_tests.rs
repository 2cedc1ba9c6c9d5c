//! Locks that are left on the nodes, in paused time.

use std::time::Duration;

use tokio::time::sleep;

use super::tests::{SECOND, manager};
use crate::node::fake::Mode;
use crate::scope;

/// For work that is to be done once per period.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_kept_runs_out_by_itself() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(6 * SECOND).renew().try_acquire().await.unwrap();
    guard.keep_until_expiry();
    sleep(5 * SECOND).await;
    assert!(nodes.iter().all(|node| node.is_held()));
    assert!(locks.lock("a").try_acquire().await.unwrap_err().is_contended());
    sleep(SECOND).await;
    assert!(nodes.iter().all(|node| !node.is_held()), "not renewed");
    assert!(nodes.iter().all(|node| node.releases() == 0));
    locks.lock("a").try_acquire().await.unwrap().release().await.unwrap();
}

/// A node that has forgotten it answers the extension after the holder has gone.
#[tokio::test(start_paused = true)]
async fn what_is_kept_is_not_set_again() {
    let (locks, nodes) = manager(3);
    let guard = locks.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    nodes[2].forget();
    nodes[2].set(Mode::Up(Duration::from_millis(5)));
    guard.extend(30 * SECOND).await.unwrap();
    guard.keep_until_expiry();
    sleep(SECOND).await;
    assert_eq!(nodes.iter().map(|node| node.is_held()).collect::<Vec<_>>(), [true, true, false]);
}

/// One of two guards of a scope asks to keep the lock. Until the other one goes, it is held: one node after
/// the other is restarted without its data, and gets it again.
#[tokio::test(start_paused = true)]
async fn what_is_to_be_kept_and_still_shared_is_set_again() {
    let (locks, nodes) = manager(3);
    scope(async {
        let request = || locks.lock("a").reentrant().try_acquire();
        let (kept, held) = (request().await.unwrap(), request().await.unwrap());
        kept.keep_until_expiry();
        for node in &nodes {
            node.forget();
            sleep(60 * SECOND).await;
            assert!(node.is_held() && held.is_valid());
        }
        drop(held);
        nodes[0].forget();
        sleep(10 * SECOND).await;
        let held: Vec<_> = nodes.iter().map(|node| node.is_held()).collect();
        assert_eq!(held, [false, true, true], "kept as it was");
    })
    .await;
}

/// Whoever asked for that may have gone; another guard of the same scope still shares it.
#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_what_is_to_be_kept() {
    let (locks, nodes) = manager(3);
    scope(async {
        let request = || locks.lock("a").reentrant().try_acquire();
        let (kept, shared) = (request().await.unwrap(), request().await.unwrap());
        kept.keep_until_expiry();
        locks.shutdown().await;
        assert!(!shared.is_valid(), "nothing is held any more");
        drop(shared);
        sleep(25 * SECOND).await;
        assert!(nodes.iter().all(|node| node.is_held()));
    })
    .await;
}
