//! Locks on a Redis Cluster.

mod failover;
mod links;
mod modes;
mod moving;
mod rights;
mod slots;

use std::time::Duration;

use redlock_core::{LockManager, LockManagerBuilder};
use redlock_tests::RedisCluster;

/// Longer than any step of a test takes on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn builder(cluster: &RedisCluster) -> LockManagerBuilder {
    let builder = LockManager::builder().url(cluster.url()).node_timeout(SOON / 15);
    builder.connect_timeout(SOON / 4)
}

async fn connect(cluster: &RedisCluster) -> LockManager {
    builder(cluster).connect().await.unwrap()
}
