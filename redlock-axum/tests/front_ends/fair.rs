//! Requests that wait in order of arrival.

use std::time::Duration;

use redlock_axum::LockManager;
use tokio::time::timeout;

use super::{FrontEnd, KEY};

on_each_front_end![a_fair_request_does_not_overtake_a_fair_caller_of_another_process,];

/// The lock is free, but a caller of another process is first.
async fn a_fair_request_does_not_overtake_a_fair_caller_of_another_process(front_end: FrontEnd) {
    let app = app!(front_end, [fair], [.fair(true)], async fn handler() {});
    let overtaking = app!(front_end, [], [], async fn handler() {});
    let overtaking = overtaking.on(&app);
    let other = LockManager::builder().memory_node(&app.node).connect().await.unwrap();
    let held = other.lock(KEY).try_acquire().await.unwrap();
    let mut first = Box::pin(other.lock(KEY).fair(true).wait_forever().acquire());
    // From now on this caller is not polled, so that it does not take the lock.
    timeout(Duration::from_millis(100), &mut first).await.unwrap_err();
    held.release().await.unwrap();
    assert_eq!(app.post().await.status, 409);
    assert_eq!(overtaking.post().await.status, 200);
    drop(first);
    assert_eq!(app.post().await.status, 200);
    assert!(app.node.is_empty());
}
