//! The nodes of a lock manager, of any kind.

use std::time::Duration;

use futures_util::future::join_all;
use redlock_actor_node::{ActorNode, UnorderedNode};
use redlock_core::{Dialect, LockManager, LockManagerBuilder, MemoryNode};

use crate::cluster::RedisCluster;
use crate::eventually::eventually;
use crate::probe::Probe;
use crate::redis_server::RedisServer;
use crate::sentinel_group::FailoverGroup;
use crate::servers::Servers;

/// The nodes of a lock manager, of any kind, so that one test can run over all kinds.
#[derive(Debug)]
pub enum Nodes {
    /// Nodes in the memory of this process.
    Memory(Vec<MemoryNode>),
    /// Nodes that use only the public trait `Node`.
    Actor(Vec<ActorNode>),
    /// Actor nodes that execute operations in any order.
    Unordered(Vec<ActorNode>),
    /// Real servers.
    Redis(Servers),
    /// One node that is a Redis Cluster of three masters.
    Cluster(RedisCluster),
    /// Sentinel groups that do not fail over. Their first server is the master.
    Sentinel(Vec<FailoverGroup>),
    /// Nodes of any of these kinds, with the dialect of Redisson.
    Redisson(Box<Self>),
}

impl Nodes {
    /// Makes nodes in memory.
    pub fn memory(count: usize) -> Self {
        redlock_logs::watch();
        Self::Memory((0..count).map(|_| MemoryNode::new()).collect())
    }

    /// Starts nodes that use only the public trait `Node`.
    pub fn actor(count: usize) -> Self {
        redlock_logs::watch();
        Self::Actor(
            (1..=count).map(|number| ActorNode::start(&format!("actor-{number}"))).collect(),
        )
    }

    /// Starts actor nodes that execute operations in any order.
    pub fn unordered(count: usize) -> Self {
        match Self::actor(count) {
            Self::Actor(nodes) => Self::Unordered(nodes),
            other => other,
        }
    }

    /// Starts Redis servers.
    ///
    /// # Panics
    ///
    /// If a server cannot be started.
    pub async fn redis(count: usize) -> Self {
        Self::Redis(Servers::start(count).await)
    }

    /// Starts Sentinel groups.
    ///
    /// # Panics
    ///
    /// If a process cannot be started.
    pub async fn sentinel(count: usize) -> Self {
        let start = || FailoverGroup::options().calm().start();
        Self::Sentinel(join_all((0..count).map(|_| start())).await)
    }

    /// Starts a Redis Cluster of three masters, which is one node.
    ///
    /// # Panics
    ///
    /// If the cluster cannot be made.
    pub async fn cluster() -> Self {
        Self::Cluster(RedisCluster::start().await)
    }

    /// Returns whether the tests run over every kind of nodes, and not only over a selection: the environment variable
    /// `REDLOCK_ALL_NODES` is `1`.
    pub fn all_kinds() -> bool {
        std::env::var_os("REDLOCK_ALL_NODES").is_some_and(|value| value == "1")
    }

    /// Returns the same nodes, with the dialect of Redisson.
    #[must_use]
    pub fn redisson(self) -> Self {
        Self::Redisson(Box::new(self))
    }

    /// Returns the Redis servers, if the nodes are servers.
    pub fn servers(&self) -> Option<&Servers> {
        match self {
            Self::Memory(_) | Self::Actor(_) | Self::Unordered(_) | Self::Sentinel(_) => None,
            Self::Redis(servers) => Some(servers),
            Self::Cluster(cluster) => Some(cluster.servers()),
            Self::Redisson(nodes) => nodes.servers(),
        }
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        match self {
            Self::Memory(nodes) => nodes.len(),
            Self::Actor(nodes) | Self::Unordered(nodes) => nodes.len(),
            Self::Redis(servers) => servers.len(),
            Self::Cluster(_) => 1,
            Self::Sentinel(groups) => groups.len(),
            Self::Redisson(nodes) => nodes.count(),
        }
    }

    /// Returns a builder with these nodes. Its timeouts are longer than the defaults, because many tests
    /// share few cores.
    pub fn builder(&self) -> LockManagerBuilder {
        let builder = LockManager::builder()
            .node_timeout(Duration::from_secs(2))
            .connect_timeout(Duration::from_secs(10));
        match self {
            Self::Memory(nodes) => nodes.iter().fold(builder, LockManagerBuilder::memory_node),
            Self::Actor(nodes) => nodes.iter().cloned().fold(builder, LockManagerBuilder::node),
            Self::Unordered(nodes) => {
                nodes.iter().map(UnorderedNode::new).fold(builder, LockManagerBuilder::node)
            }
            Self::Redis(servers) => builder.urls(servers.urls()),
            Self::Cluster(cluster) => builder.url(cluster.url()),
            Self::Sentinel(groups) => builder.urls(groups.iter().map(FailoverGroup::url)),
            Self::Redisson(nodes) => nodes.builder().dialect(Dialect::Redisson),
        }
    }

    /// Returns a manager on these nodes.
    ///
    /// # Panics
    ///
    /// If the manager cannot connect.
    pub async fn manager(&self) -> LockManager {
        self.builder().connect().await.expect("a manager")
    }

    /// Returns a connection to each server that has the lock of this name; none for nodes in memory.
    ///
    /// # Panics
    ///
    /// If a server does not answer.
    pub async fn probes(&self, name: &str) -> Vec<Probe> {
        match self {
            Self::Memory(_) | Self::Actor(_) | Self::Unordered(_) => Vec::new(),
            Self::Redis(servers) => join_all(servers.iter().map(RedisServer::probe)).await,
            Self::Cluster(cluster) => vec![cluster.probe(cluster.owner(name).await).await],
            Self::Sentinel(groups) => {
                join_all(groups.iter().map(|group| group.servers[0].probe())).await
            }
            Self::Redisson(nodes) => Box::pin(nodes.probes(name)).await,
        }
    }

    /// Returns the remaining time to live of a lock on each node, `None` where it does not exist. `name` is
    /// the full name of the lock.
    ///
    /// # Panics
    ///
    /// If a server does not answer.
    pub async fn times_to_live(&self, name: &str) -> Vec<Option<Duration>> {
        match self {
            Self::Memory(nodes) => nodes.iter().map(|node| node.time_to_live(name)).collect(),
            Self::Actor(nodes) | Self::Unordered(nodes) => {
                let times = nodes.iter().map(|node| node.time_to_live(name));
                join_all(times).await
            }
            Self::Redisson(nodes) => Box::pin(nodes.times_to_live(name)).await,
            Self::Redis(_) | Self::Cluster(_) | Self::Sentinel(_) => {
                let mut probes = self.probes(name).await;
                join_all(probes.iter_mut().map(|probe| probe.time_to_live(name))).await
            }
        }
    }

    /// Waits until callers of so many managers wait for the release of a lock: each of these managers has subscribed to its
    /// releases on each server. Nodes in memory do not show their waiters, so there the other tasks run first, until all
    /// of them wait.
    ///
    /// # Panics
    ///
    /// If fewer managers have subscribed after ten seconds.
    pub async fn are_waited_for(&self, name: &str, managers: usize) {
        let mut probes = self.probes(name).await;
        if probes.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for probe in &mut probes {
            eventually("callers wait for the lock", Duration::from_secs(10), async || {
                let (_, count): (String, usize) = probe.command(["PUBSUB", "NUMSUB", name]).await;
                (count >= managers).then_some(())
            })
            .await;
        }
    }

    /// Returns the sum of the numbers of locks on all nodes that are up.
    ///
    /// # Panics
    ///
    /// If one of these nodes does not answer.
    pub async fn locks(&self) -> usize {
        match self {
            Self::Memory(nodes) => nodes.iter().map(MemoryNode::len).sum(),
            Self::Actor(nodes) | Self::Unordered(nodes) => {
                join_all(nodes.iter().map(ActorNode::len)).await.iter().sum()
            }
            Self::Cluster(_) | Self::Redis(_) => {
                let Some(servers) = self.servers() else { return 0 };
                // The counter of the fencing tokens is not a lock, and stays.
                let keys = servers.keys().await;
                keys.iter().filter(|key| !key.contains("redlock:fencing")).count()
            }
            Self::Sentinel(groups) => {
                let keys =
                    groups.iter().map(async |group| group.servers[0].probe().await.keys().await);
                let keys = join_all(keys).await.concat();
                keys.iter().filter(|key| !key.contains("redlock:fencing")).count()
            }
            Self::Redisson(nodes) => Box::pin(nodes.locks()).await,
        }
    }

    /// Waits until no lock is left on any node that is up. A release in the background may still be running.
    ///
    /// # Panics
    ///
    /// If a lock is left after ten seconds.
    pub async fn become_empty(&self) {
        eventually("no lock is left on any node", Duration::from_secs(10), async || {
            (self.locks().await == 0).then_some(())
        })
        .await;
    }

    /// Waits until each node has the lock. An acquisition returns at quorum, when some nodes may not have the
    /// lock yet.
    ///
    /// # Panics
    ///
    /// If a node does not have the lock after ten seconds.
    pub async fn all_hold(&self, name: &str) {
        eventually("each node has the lock", Duration::from_secs(10), async || {
            self.times_to_live(name).await.iter().all(Option::is_some).then_some(())
        })
        .await;
    }
}

/// Generates a test of each behaviour for each kind of nodes, in a module named after the kind.
///
/// A behaviour is an async function of the same file that takes the nodes. If the list of behaviours has the
/// name of a function in front of it, the tests call that function with the nodes and the behaviour.
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
                Box::pin($run($nodes, $behaviour)).await;)+
            }
        }
    };
    (@all $kind:ident: $nodes:expr, [$($behaviour:ident,)+]) => {
        #[tokio::test]
        async fn $kind() {
            if Nodes::all_kinds() {
                $(println!(stringify!($behaviour));
                Box::pin($behaviour($nodes)).await;)+
            }
        }
    };
    (@one $kind:ident: $nodes:expr, $run:ident [$($behaviour:ident,)+]) => {
        mod $kind {
            use super::*;
            $(#[tokio::test]
            async fn $behaviour() {
                $run($nodes, super::$behaviour).await;
            })+
        }
    };
    (@one $kind:ident: $nodes:expr, [$($behaviour:ident,)+]) => {
        mod $kind {
            use super::*;
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour($nodes).await;
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
