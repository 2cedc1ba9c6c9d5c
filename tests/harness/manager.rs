//! Lock managers on real servers.

use std::time::Duration;

use redlock_core::{LockManager, LockManagerBuilder};

/// Returns a builder with these nodes. Its timeouts are much longer than the defaults, because many tests share few cores:
/// a `node_timeout` of 5 s, and a `connect_timeout` of 20 s.
///
/// A manager whose own lease (`expire`) is not longer than the `node_timeout` needs a shorter one, and so does a test that
/// waits until a frozen server counts as silent.
pub fn builder(urls: impl IntoIterator<Item = impl AsRef<str>>) -> LockManagerBuilder {
    let builder = LockManager::builder().urls(urls);
    builder.node_timeout(Duration::from_secs(5)).connect_timeout(Duration::from_secs(20))
}

/// Connects a manager to these nodes, with the timeouts of [`builder`].
///
/// # Panics
///
/// If the manager cannot connect.
pub async fn connect(urls: impl IntoIterator<Item = impl AsRef<str>>) -> LockManager {
    builder(urls).connect().await.expect("a manager")
}
