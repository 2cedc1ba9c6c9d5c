//! The nodes of a lock manager, in memory or real.

use std::time::Duration;

use redlock_actor_node::{ActorNode, UnorderedNode};
use redlock_core::{Dialect, LockManager, LockManagerBuilder, MemoryNode};

use crate::eventually::eventually;
use crate::servers::Servers;

/// What a manager locks on, so that one test can run over all kinds.
#[derive(Debug)]
pub enum Nodes {
    /// Nodes in the memory of this process.
    Memory(Vec<MemoryNode>),
    /// Nodes that are written against the public trait.
    Actor(Vec<ActorNode>),
    /// The same nodes, reached in any order.
    Unordered(Vec<ActorNode>),
    /// Real servers.
    Redis(Servers),
    /// Any of them, locked on in the dialect of Redisson.
    Redisson(Box<Self>),
}

impl Nodes {
    /// Makes nodes in memory.
    pub fn memory(count: usize) -> Self {
        redlock_logs::watch();
        Self::Memory((0..count).map(|_| MemoryNode::new()).collect())
    }

    /// Starts nodes that are written against the public trait.
    pub fn actor(count: usize) -> Self {
        redlock_logs::watch();
        Self::Actor(
            (1..=count).map(|number| ActorNode::start(&format!("actor-{number}"))).collect(),
        )
    }

    /// Starts such nodes, to be reached in any order.
    pub fn unordered(count: usize) -> Self {
        match Self::actor(count) {
            Self::Actor(nodes) => Self::Unordered(nodes),
            other => other,
        }
    }

    /// Starts servers.
    ///
    /// # Panics
    ///
    /// When one cannot be started.
    pub async fn redis(count: usize) -> Self {
        Self::Redis(Servers::start(count).await)
    }

    /// The same nodes, locked on in the dialect of Redisson.
    #[must_use]
    pub fn redisson(self) -> Self {
        Self::Redisson(Box::new(self))
    }

    /// The servers, if they are real.
    pub fn servers(&self) -> Option<&Servers> {
        match self {
            Self::Memory(_) | Self::Actor(_) | Self::Unordered(_) => None,
            Self::Redis(servers) => Some(servers),
            Self::Redisson(nodes) => nodes.servers(),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Memory(nodes) => nodes.len(),
            Self::Actor(nodes) | Self::Unordered(nodes) => nodes.len(),
            Self::Redis(servers) => servers.len(),
            Self::Redisson(nodes) => nodes.count(),
        }
    }

    /// A builder that has these nodes, and more patience with them than the default: the tests are
    /// many and the cores are few.
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
            Self::Redisson(nodes) => nodes.builder().dialect(Dialect::Redisson),
        }
    }

    /// A manager on these nodes.
    ///
    /// # Panics
    ///
    /// When it cannot connect.
    pub async fn manager(&self) -> LockManager {
        self.builder().connect().await.expect("a manager")
    }

    /// What is left of a lock on each node, by its full name.
    ///
    /// # Panics
    ///
    /// When a server does not answer.
    pub async fn times_to_live(&self, name: &str) -> Vec<Option<Duration>> {
        match self {
            Self::Memory(nodes) => nodes.iter().map(|node| node.time_to_live(name)).collect(),
            Self::Actor(nodes) | Self::Unordered(nodes) => {
                let times = nodes.iter().map(|node| node.time_to_live(name));
                futures_util::future::join_all(times).await
            }
            Self::Redis(servers) => {
                let mut times = Vec::with_capacity(servers.len());
                for server in servers.iter() {
                    times.push(server.probe().await.time_to_live(name).await);
                }
                times
            }
            Self::Redisson(nodes) => Box::pin(nodes.times_to_live(name)).await,
        }
    }

    /// How many locks there are, added up over all nodes that are up.
    ///
    /// # Panics
    ///
    /// When one of them does not answer.
    pub async fn locks(&self) -> usize {
        match self {
            Self::Memory(nodes) => nodes.iter().map(MemoryNode::len).sum(),
            Self::Actor(nodes) | Self::Unordered(nodes) => {
                futures_util::future::join_all(nodes.iter().map(ActorNode::len)).await.iter().sum()
            }
            Self::Redis(servers) => {
                // The counter of fenced locks stays.
                let keys = servers.keys().await;
                keys.iter().filter(|key| !key.contains("redlock:fencing")).count()
            }
            Self::Redisson(nodes) => Box::pin(nodes.locks()).await,
        }
    }

    /// Waits until no lock is left on any node that is up, which a release in the background may
    /// take a moment for.
    ///
    /// # Panics
    ///
    /// When one is still there after ten seconds.
    pub async fn become_empty(&self) {
        eventually("no lock is left on any node", Duration::from_secs(10), async || {
            (self.locks().await == 0).then_some(())
        })
        .await;
    }

    /// Waits until each node has the lock: beyond the quorum, they learn of it later.
    ///
    /// # Panics
    ///
    /// When one has not after ten seconds.
    pub async fn all_hold(&self, name: &str) {
        eventually("each node has the lock", Duration::from_secs(10), async || {
            self.times_to_live(name).await.iter().all(Option::is_some).then_some(())
        })
        .await;
    }
}

/// Makes a test of each behaviour on each kind of nodes, in a module that is named after the kind.
///
/// A behaviour is an async function of the same file that takes the nodes. With another function in
/// front of them, that one takes the nodes and the behaviour.
#[macro_export]
macro_rules! on_each_kind_of_nodes {
    ([$($kind:ident: $nodes:expr,)+] $behaviours:tt) => {
        $($crate::on_each_kind_of_nodes! { @one $kind: $nodes, $behaviours })+
    };
    ([$($kind:ident: $nodes:expr,)+] $run:ident $behaviours:tt) => {
        $($crate::on_each_kind_of_nodes! { @one $kind: $nodes, $run $behaviours })+
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
    (@one $kind:ident: $nodes:expr, $run:ident [$($behaviour:ident,)+]) => {
        mod $kind {
            use super::*;
            $(#[tokio::test]
            async fn $behaviour() {
                $run($nodes, super::$behaviour).await;
            })+
        }
    };
}
