//! The servers of the harness as the stores of nodes.

use std::any::Any;
use std::time::Duration;

use redlock_core::LockManagerBuilder;
use redlock_core::test_util::node_tests::{StoreFault, StoreFuture, TestStore};

use crate::cluster::RedisCluster;
use crate::postgres::PostgresServer;
use crate::probe::Probe;
use crate::redis_server::RedisServer;
use crate::sentinel_group::FailoverGroup;
use crate::zookeeper::ZookeeperServer;

/// The Redis servers of a store, if it has any. Those of a Sentinel group are not among them: the sentinels connect to them
/// and subscribe too.
pub(crate) fn redis_servers(store: &dyn TestStore) -> &[RedisServer] {
    let store: &dyn Any = store;
    if let Some(server) = store.downcast_ref() {
        std::slice::from_ref(server)
    } else if let Some(cluster) = store.downcast_ref::<RedisCluster>() {
        cluster.servers()
    } else {
        &[]
    }
}

/// The URL of a node over a store that is a server.
pub(crate) fn url(store: &dyn TestStore) -> Option<String> {
    let store: &dyn Any = store;
    let postgres = || store.downcast_ref().map(PostgresServer::url);
    let zookeeper = || store.downcast_ref().map(ZookeeperServer::url);
    let cluster = || store.downcast_ref().map(RedisCluster::url);
    let group = || store.downcast_ref().map(FailoverGroup::url);
    let redis = store.downcast_ref().map(RedisServer::url);
    redis.or_else(postgres).or_else(zookeeper).or_else(cluster).or_else(group)
}

/// Connects to the Redis server of a store that has the lock of this name.
pub(crate) async fn probe(store: &dyn TestStore, name: &str) -> Option<Probe> {
    let any: &dyn Any = store;
    if let Some(group) = any.downcast_ref::<FailoverGroup>() {
        return Some(group.servers[0].probe().await);
    }
    let owner = match any.downcast_ref::<RedisCluster>() {
        Some(cluster) => cluster.owner(name).await,
        None => 0,
    };
    Some(redis_servers(store).get(owner)?.probe().await)
}

/// Implements the methods that all stores of Redis servers have in common.
macro_rules! by_probe {
    () => {
        fn add_to(&self, builder: LockManagerBuilder) -> LockManagerBuilder {
            builder.url(self.url())
        }

        fn remaining<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Duration>> {
            Box::pin(async { probe(self, name).await?.time_to_live(name).await })
        }

        fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
            Box::pin(async {
                let Some(mut probe) = probe(self, name).await else { return false };
                probe.command::<()>(["DEL", name]).await;
                true
            })
        }

        fn subscribers<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<usize>> {
            Box::pin(async {
                let numsub = ["PUBSUB", "NUMSUB", name];
                let (_, count): (String, usize) = probe(self, name).await?.command(numsub).await;
                Some(count)
            })
        }
    };
}

/// The counter of the fencing tokens and the answers to requests are no locks, and stay.
fn count_locks(keys: &[String]) -> usize {
    let is_lock = |key: &str| !key.contains("redlock:fencing") && !key.contains("redlock:answer");
    keys.iter().filter(|key| is_lock(key)).count()
}

impl TestStore for RedisServer {
    by_probe! {}

    fn locks(&self) -> StoreFuture<'_, usize> {
        Box::pin(async {
            if self.is_up() { count_locks(&self.probe().await.keys().await) } else { 0 }
        })
    }

    fn fault(&mut self, fault: StoreFault) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            match fault {
                StoreFault::Freeze => self.freeze(),
                StoreFault::Thaw => self.thaw(),
                StoreFault::Kill => self.kill(),
                StoreFault::Restart => self.restart().await,
                _ => return false,
            }
            true
        })
    }

    fn leftovers(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async {
            let channels: Vec<String> = self.probe().await.command(["PUBSUB", "CHANNELS"]).await;
            channels.into_iter().map(|channel| format!("a subscription to {channel}")).collect()
        })
    }
}

impl TestStore for RedisCluster {
    by_probe! {}

    fn locks(&self) -> StoreFuture<'_, usize> {
        Box::pin(async { count_locks(&self.keys().await) })
    }
}

/// The first server of the group is its master: it does not fail over.
impl TestStore for FailoverGroup {
    by_probe! {}

    fn locks(&self) -> StoreFuture<'_, usize> {
        Box::pin(async { count_locks(&self.servers[0].probe().await.keys().await) })
    }
}

impl TestStore for PostgresServer {
    fn add_to(&self, builder: LockManagerBuilder) -> LockManagerBuilder {
        builder.url(self.url())
    }

    fn remaining<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Duration>> {
        Box::pin(self.locks_rest(name))
    }

    fn locks(&self) -> StoreFuture<'_, usize> {
        Box::pin(async { if self.is_up() { self.locks_count().await } else { 0 } })
    }

    fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        Box::pin(async {
            self.delete_lock(name).await;
            true
        })
    }

    fn fault(&mut self, fault: StoreFault) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            match fault {
                StoreFault::Freeze => self.freeze(),
                StoreFault::Thaw => self.thaw(),
                StoreFault::Kill => self.kill(),
                StoreFault::Restart => self.restart().await,
                _ => return false,
            }
            true
        })
    }
}

impl TestStore for ZookeeperServer {
    fn add_to(&self, builder: LockManagerBuilder) -> LockManagerBuilder {
        builder.url(self.url())
    }

    fn remaining<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Duration>> {
        Box::pin(self.locks_rest(name))
    }

    fn locks(&self) -> StoreFuture<'_, usize> {
        Box::pin(async { if self.is_up() { self.locks_count().await.0 } else { 0 } })
    }

    fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        Box::pin(async {
            self.delete_lock(name).await;
            true
        })
    }

    /// Several tests use a shared server.
    fn fault(&mut self, fault: StoreFault) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            if self.is_shared() {
                return false;
            }
            match fault {
                StoreFault::Freeze => self.freeze(),
                StoreFault::Thaw => self.thaw(),
                StoreFault::Kill => self.kill(),
                StoreFault::Restart => self.restart().await,
                _ => return false,
            }
            true
        })
    }

    fn leftovers(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async {
            let (_, waiting) = self.locks_count().await;
            if waiting == 0 {
                Vec::new()
            } else {
                vec![format!("{waiting} children behind a holder")]
            }
        })
    }
}
