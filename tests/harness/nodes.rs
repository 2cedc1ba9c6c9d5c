//! The nodes of a lock manager, over stores of any kind.

use std::ops::{Deref, DerefMut};

use futures_util::future::join_all;
use redlock_actor_node::{ActorNode, UnorderedNode};
use redlock_core::test_util::node_tests::{TestStore, TestStores};
use redlock_core::{Dialect, LockError, MemoryNode};

use crate::cluster::RedisCluster;
use crate::postgres::PostgresServer;
use crate::probe::Probe;
use crate::redis_server::RedisServer;
use crate::sentinel_group::FailoverGroup;
use crate::servers::Servers;
use crate::stores::{probe, redis_servers, url};
use crate::zookeeper::{ZookeeperOptions, ZookeeperServer};

/// The nodes of a lock manager, over stores of any kind, so that one test can run over all kinds.
#[derive(Debug)]
pub struct Nodes {
    stores: TestStores,
    dialect: Dialect,
}

impl Nodes {
    /// Collects stores, which may be of different kinds.
    pub fn stores(stores: impl Into<TestStores>) -> Self {
        redlock_logs::watch();
        Self { stores: stores.into(), dialect: Dialect::Plain }
    }

    /// Makes nodes in memory.
    pub fn memory(count: usize) -> Self {
        Self::stores((0..count).map(|_| MemoryNode::new()).collect::<Vec<_>>())
    }

    /// Starts nodes that use only the public trait `Node`.
    pub fn actor(count: usize) -> Self {
        Self::stores(actors(count).collect::<Vec<_>>())
    }

    /// Starts actor nodes that execute operations in any order.
    pub fn unordered(count: usize) -> Self {
        Self::stores(actors(count).map(|node| UnorderedNode::new(&node)).collect::<Vec<_>>())
    }

    /// Starts Redis servers.
    ///
    /// # Panics
    ///
    /// If a server cannot be started.
    pub async fn redis(count: usize) -> Self {
        Self::stores(Servers::start(count).await.into_iter().collect::<Vec<_>>())
    }

    /// Starts Sentinel groups. They do not fail over: the first server of each is its master.
    ///
    /// # Panics
    ///
    /// If a process cannot be started.
    pub async fn sentinel(count: usize) -> Self {
        let start = || FailoverGroup::options().calm().start();
        Self::stores(join_all((0..count).map(|_| start())).await)
    }

    /// Starts a Redis Cluster of three masters, which is one node.
    ///
    /// # Panics
    ///
    /// If the cluster cannot be made.
    pub async fn cluster() -> Self {
        Self::stores(RedisCluster::start().await)
    }

    /// Starts PostgreSQL servers and, beside them, Redis servers. Returns no nodes, which skips the test, if PostgreSQL does
    /// not exist on this machine.
    ///
    /// # Panics
    ///
    /// If a server cannot be started.
    pub async fn postgres(count: usize, redis: usize) -> Self {
        let mut stores: Vec<Box<dyn TestStore>> = Vec::new();
        for _ in 0..count {
            let options = PostgresServer::options();
            let options = if count > 1 { options.independent() } else { options };
            match options.start().await {
                Ok(server) => stores.push(Box::new(server)),
                Err(reason) => {
                    crate::skip(&reason);
                    return Self::stores(TestStores::new(Vec::new()));
                }
            }
        }
        for server in Servers::start(redis).await {
            stores.push(Box::new(server));
        }
        Self::stores(TestStores::new(stores))
    }

    /// Returns a node over ZooKeeper, in a folder of its own on a server that several tests use. Returns no nodes, which
    /// skips the test, if Java or ZooKeeper is missing.
    ///
    /// # Panics
    ///
    /// If the server cannot be started.
    pub async fn zookeeper() -> Self {
        Self::zookeeper_with(ZookeeperServer::options()).await
    }

    /// As [`zookeeper`](Self::zookeeper), with these options.
    ///
    /// # Panics
    ///
    /// If the server cannot be started.
    pub async fn zookeeper_with(options: ZookeeperOptions) -> Self {
        match options.start().await {
            Ok(server) => Self::stores(server),
            Err(reason) => {
                crate::skip(&reason);
                Self::stores(TestStores::new(Vec::new()))
            }
        }
    }

    /// Returns whether the tests run over every kind of nodes, and not only over a selection: the environment variable
    /// `REDLOCK_ALL_NODES` is `1`.
    pub fn all_kinds() -> bool {
        std::env::var_os("REDLOCK_ALL_NODES").is_some_and(|value| value == "1")
    }

    /// Returns the same nodes, with the dialect of Redisson.
    #[must_use]
    pub fn redisson(self) -> Self {
        let configure =
            |builder: redlock_core::LockManagerBuilder| builder.dialect(Dialect::Redisson);
        Self { stores: self.stores.configure(configure), dialect: Dialect::Redisson }
    }

    /// Returns the dialect of the locks.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns whether the nodes can hold any keys together. A Redis Cluster cannot if they lie in different slots.
    ///
    /// # Panics
    ///
    /// If a manager cannot connect.
    pub async fn hold_several_keys(&self) -> bool {
        let acquired = self.manager().await.lock_all(["a", "b"]).try_acquire().await;
        !matches!(acquired, Err(LockError::InvalidOption(_)))
    }

    /// Returns the URLs of the nodes over servers.
    pub fn urls(&self) -> Vec<String> {
        self.iter().filter_map(|store| url(&**store)).collect()
    }

    /// Returns the Redis servers of all stores, apart from those of Sentinel groups.
    pub fn servers(&self) -> Vec<&RedisServer> {
        self.iter().flat_map(|store| redis_servers(&**store)).collect()
    }

    /// Returns a connection to each Redis server that has the lock of this name.
    ///
    /// # Panics
    ///
    /// If a server does not answer.
    pub async fn probes(&self, name: &str) -> Vec<Probe> {
        let probes = join_all(self.iter().map(|store| probe(&**store, name))).await;
        probes.into_iter().flatten().collect()
    }
}

fn actors(count: usize) -> impl Iterator<Item = ActorNode> {
    (1..=count).map(|number| ActorNode::start(&format!("actor-{number}")))
}

impl From<Nodes> for TestStores {
    fn from(nodes: Nodes) -> Self {
        nodes.stores
    }
}

impl Deref for Nodes {
    type Target = TestStores;

    fn deref(&self) -> &TestStores {
        &self.stores
    }
}

impl DerefMut for Nodes {
    fn deref_mut(&mut self) -> &mut TestStores {
        &mut self.stores
    }
}

/// Generates a test of each behaviour for each kind of nodes, in a module named after the kind.
///
/// A behaviour is an async function that takes the nodes or, as those of
/// [`node_tests`](redlock_core::test_util::node_tests), their stores. If the list of behaviours has the
/// name of a function in front of it, the tests call that function with the nodes and the behaviour. A test without nodes
/// does nothing.
///
/// The kinds after `if_all_kinds` have a single test for all behaviours. It does nothing unless
/// [`Nodes::all_kinds`] is `true`.
#[macro_export]
macro_rules! on_each_kind_of_nodes {
    ([$($kind:ident: $nodes:expr,)*] if_all_kinds [$($more:ident: $others:expr,)+] $($behaviours:tt)+) => {
        $crate::on_each_kind_of_nodes! { [$($kind: $nodes,)*] $($behaviours)+ }
        $crate::on_each_kind_of_nodes! { @if_all_kinds [$($more: $others,)+] $($behaviours)+ }
    };
    (@if_all_kinds [$($kind:ident: $nodes:expr,)+] $run:ident $behaviours:tt) => {
        $($crate::on_each_kind_of_nodes! { @all $kind: $nodes, $run $behaviours })+
    };
    (@if_all_kinds [$($kind:ident: $nodes:expr,)+] $behaviours:tt) => {
        $($crate::on_each_kind_of_nodes! { @all $kind: $nodes, $behaviours })+
    };
    (@all $kind:ident: $nodes:expr, $run:ident [$($behaviour:ident,)+]) => {
        #[tokio::test]
        async fn $kind() {
            if Nodes::all_kinds() {
                $(println!(stringify!($behaviour));
                let nodes: $crate::Nodes = $nodes;
                if !nodes.is_empty() { Box::pin($run(nodes, $behaviour)).await; })+
            }
        }
    };
    (@all $kind:ident: $nodes:expr, [$($behaviour:ident,)+]) => {
        #[tokio::test]
        async fn $kind() {
            if Nodes::all_kinds() {
                $(println!(stringify!($behaviour));
                let nodes: $crate::Nodes = $nodes;
                if !nodes.is_empty() { Box::pin($behaviour(nodes.into())).await; })+
            }
        }
    };
    (@one $kind:ident: $nodes:expr, $run:ident [$($behaviour:ident,)+]) => {
        mod $kind {
            use super::*;
            $(#[tokio::test]
            async fn $behaviour() {
                let nodes: $crate::Nodes = $nodes;
                if !nodes.is_empty() { $run(nodes, super::$behaviour).await; }
            })+
        }
    };
    (@one $kind:ident: $nodes:expr, [$($behaviour:ident,)+]) => {
        mod $kind {
            use super::*;
            $(#[tokio::test]
            async fn $behaviour() {
                let nodes: $crate::Nodes = $nodes;
                if !nodes.is_empty() { super::$behaviour(nodes.into()).await; }
            })+
        }
    };
    ([$($kind:ident: $nodes:expr,)*] $run:ident $behaviours:tt) => {
        $($crate::on_each_kind_of_nodes! { @one $kind: $nodes, $run $behaviours })*
    };
    ([$($kind:ident: $nodes:expr,)*] $behaviours:tt) => {
        $($crate::on_each_kind_of_nodes! { @one $kind: $nodes, $behaviours })*
    };
}
