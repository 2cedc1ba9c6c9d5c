//! Promises of a lock to its callers.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cancellation;
mod conformance;
mod fair;
mod fencing;
mod holding;
mod keeping;
mod runtimes;
mod sets_of_many_processes;
mod several_keys;
mod shared;
mod slow_release;
mod starvation;
mod turns;
mod waiting;

use std::time::Duration;

use redlock_core::LockManager;

/// Much longer than a server needs for a reply, because many tests share few cores.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects a manager with this timeout for replies.
async fn manager(urls: Vec<String>, node_timeout: Duration) -> LockManager {
    let builder = LockManager::builder().urls(urls).connect_timeout(Duration::from_secs(20));
    builder.node_timeout(node_timeout).connect().await.unwrap()
}
