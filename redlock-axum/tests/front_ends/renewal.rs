//! A lock that is renewed while its handler runs.

use std::time::Duration;

use axum::Extension;
use redlock_axum::{HeldLock, MemoryNode};
use tokio::time::timeout;

use super::{FrontEnd, KEY, MINUTE};
use crate::support::eventually;

on_each_front_end![a_renewed_lock_outlives_its_first_lease, a_renewal_ends_with_max_hold,];

/// Waits until the time to live of the key has grown.
pub(crate) async fn until_renewed(node: &MemoryNode) {
    let mut last = Duration::MAX;
    loop {
        let left = node.time_to_live(KEY).expect("the lock is held");
        if left > last {
            return;
        }
        last = left;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn a_renewed_lock_outlives_its_first_lease(front_end: FrontEnd) {
    let app = app!(
        front_end, [expire = 2, renew], [.expire(MINUTE / 30).renew(true)],
        async fn handler(lock: HeldLock, Extension(node): Extension<MemoryNode>) -> String {
            until_renewed(&node).await;
            (lock.is_valid() && node.len() == 1).to_string()
        }
    );
    assert_eq!(app.post().await.body, "true");
    assert!(app.node.is_empty());
}

/// A handler that hangs does not hold its lock forever.
async fn a_renewal_ends_with_max_hold(front_end: FrontEnd) {
    let app = app!(
        front_end,
        [expire = "600ms", renew = true, max_hold = "600ms"],
        [.max_hold(MINUTE / 100).expire(MINUTE / 100).renew(true)],
        async fn handler(lock: HeldLock) {
            timeout(MINUTE / 12, lock.lost()).await.expect("the lock is renewed for ever");
        }
    );
    assert_eq!(app.post().await.status, 200);
    eventually("the lease runs out", || app.node.is_empty()).await;
}
