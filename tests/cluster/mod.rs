//! Locks on a Redis Cluster.

mod databases;
mod failover;
mod links;
mod modes;
mod moving;
mod nightly;
mod played;
mod rights;
mod slots;

use std::time::Duration;

use redlock_core::{LockManager, LockManagerBuilder};
use redlock_tests::RedisCluster;

/// Longer than any step of a test takes on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Returns a builder with shorter timeouts: some leases are short, and a frozen server delays the reading of the slots for
/// the connect timeout.
fn builder(cluster: &RedisCluster) -> LockManagerBuilder {
    redlock_tests::builder([cluster.url()]).node_timeout(SOON / 15).connect_timeout(SOON / 4)
}

async fn connect(cluster: &RedisCluster) -> LockManager {
    builder(cluster).connect().await.unwrap()
}
