//! Creates a manager, and waits for its nodes at the start.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::LockManager;
use super::builder::LockManagerBuilder;
#[cfg(not(feature = "redis"))]
use super::builder::NodeConfig;
use crate::ballot::Ballot;
use crate::clock::{Clock, SystemClock};
use crate::context::Context;
use crate::error::{ConnectError, NodeError, Vote, Votes};
use crate::lease::LeaseKeeper;
use crate::log_limit::LogLimit;
use crate::node::memory::MemoryNode;
use crate::node::{LeaseRange, Node, NodeSettings, NodeStatus, StatusReceiver};
use crate::queue::{FairQueues, Queues};
use crate::quorum::quorum;
use crate::telemetry;

/// Once a quorum is up, `connect` waits for the other nodes for the connect timeout divided by this
/// number, so that a hanging node does not delay the start.
const SLOW_NODE_WAIT_DIVISOR: u32 = 4;

/// After so many connect timeouts, `connect` counts a node that is still connecting as failed. A Redis
/// node fails after one connect timeout; other kinds of nodes have no limit of their own.
const MAX_CONNECT_TIMEOUTS: u32 = 2;

impl LockManagerBuilder {
    /// Connects to all nodes concurrently and returns the manager.
    ///
    /// A quorum of nodes is enough to start. Nodes that cannot be reached are logged, and retried in the
    /// background while the manager lives. Must be called within a Tokio runtime whose I/O and time
    /// drivers are enabled.
    ///
    /// # Errors
    ///
    /// * [`ConnectError::NoNodes`], [`ConnectError::InvalidUrl`] or [`ConnectError::InvalidOption`] if
    ///   the configuration is wrong.
    /// * [`ConnectError::SameServer`] if two nodes are the same server.
    /// * [`ConnectError::Unavailable`] if fewer nodes than a quorum could be connected to.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. If the future is dropped, its connections are closed.
    pub async fn connect(self) -> Result<LockManager, ConnectError> {
        let clock = Arc::clone(&self.clock);
        #[cfg(feature = "redis")]
        let connecting = self.connect_with(clock, |_, endpoint| endpoint);
        #[cfg(not(feature = "redis"))]
        let connecting = self.connect_without_urls(clock);
        connecting.await
    }

    #[cfg(not(feature = "redis"))]
    async fn connect_without_urls(
        self,
        clock: Arc<dyn Clock>,
    ) -> Result<LockManager, ConnectError> {
        self.check()?;
        let node = |(index, config): (usize, &NodeConfig)| -> Result<Arc<dyn Node>, ConnectError> {
            Ok(match config {
                NodeConfig::Memory(node) => Arc::new(node.clone()),
                NodeConfig::Node(node) => Arc::clone(node),
                // From a `LockManagerConfig`.
                NodeConfig::Url(url) => self
                    .memory_url_node(url, index + 1, &clock)?
                    .ok_or_else(|| ConnectError::invalid_url(index + 1, super::config::NO_REDIS))?,
            })
        };
        let nodes = self.nodes.iter().enumerate().map(node).collect::<Result<_, _>>()?;
        self.start(nodes, clock).await
    }

    /// Creates the manager and starts its nodes, and waits for them.
    pub(super) async fn start(
        self,
        nodes: Vec<Arc<dyn Node>>,
        clock: Arc<dyn Clock>,
    ) -> Result<LockManager, ConnectError> {
        let connect_timeout = self.connect_timeout;
        let settings = self.node_settings(&clock);
        let manager = self.build(nodes, clock);
        manager.context.check_manager()?;
        for node in &*manager.context.ballot.nodes {
            node.start(&Handle::current(), &settings);
        }
        wait_for_quorum(&manager.context.ballot, connect_timeout).await?;
        Ok(manager)
    }

    fn node_settings(&self, clock: &Arc<dyn Clock>) -> NodeSettings {
        NodeSettings {
            node_timeout: self.resolved_node_timeout(self.nodes.len()),
            connect_timeout: self.connect_timeout,
            restart_guard: self.restart_guard,
            failover_margin: self.failover_margin,
            clock: Arc::clone(clock),
        }
    }

    pub(super) fn in_memory() -> LockManager {
        Self::new().build(vec![Arc::new(MemoryNode::new())], Arc::new(SystemClock))
    }

    /// Returns a manager with the nodes and the clock of a test, and a `node_timeout` of 50 ms.
    #[cfg(test)]
    pub(crate) fn with_nodes(nodes: Vec<Arc<dyn Node>>, clock: Arc<dyn Clock>) -> LockManager {
        Self::new().node_timeout(Duration::from_millis(50)).build(nodes, clock)
    }

    pub(crate) fn build(self, nodes: Vec<Arc<dyn Node>>, clock: Arc<dyn Clock>) -> LockManager {
        let node_timeout = self.resolved_node_timeout(nodes.len());
        let Self {
            nodes: _,
            prefix,
            dialect,
            expire,
            node_timeout: _,
            connect_timeout,
            max_waiters,
            outage_grace,
            restart_guard,
            failover_margin: _,
            cluster_refresh: _,
            tls: _,
            #[cfg(feature = "redis")]
                credentials: _,
            clock: _,
        } = self;
        telemetry::describe();
        let log_limit = Arc::new(LogLimit::new(Arc::clone(&clock)));
        let leases = LeaseRange::of(&nodes);
        let ballot = Ballot::new(nodes, node_timeout, clock, Arc::default());
        let end_on_drop = ballot.home.gone.clone().drop_guard();
        let queues = Arc::new(Queues::new(ballot.clone(), max_waiters, outage_grace));
        let fair = FairQueues::new(Arc::clone(&queues), Arc::clone(&log_limit));
        let context = Arc::new(Context {
            keeper: Arc::new(LeaseKeeper::default()),
            queues,
            fair,
            ballot,
            prefix: prefix.into(),
            dialect,
            expire,
            log_limit,
            leases,
            restart_guard,
            connect_timeout,
            _end_on_drop: end_on_drop,
        });
        context.enter();
        LockManager { context }
    }
}

/// Waits until a quorum of nodes is up. Fails at once if two nodes are the same server. Otherwise fails
/// if no quorum is up when every node has been reached or has failed to connect once, or when
/// [`MAX_CONNECT_TIMEOUTS`] is over.
async fn wait_for_quorum(ballot: &Ballot, connect_timeout: Duration) -> Result<(), ConnectError> {
    let is_decided = |status: &NodeStatus| !matches!(status, NodeStatus::Connecting);
    let mut connecting: FuturesUnordered<_> =
        ballot.statuses.iter().map(|status| status.wait_for(is_decided)).collect();
    let longest_wait = connect_timeout * MAX_CONNECT_TIMEOUTS;
    let mut timer = pin!(sleep(longest_wait));
    let (mut waits_for_slow_nodes, mut is_over) = (false, false);
    loop {
        let statuses: Vec<_> = ballot.statuses.iter().map(StatusReceiver::get).collect();
        check_stores(&ballot.nodes, &statuses)?;
        let connected = statuses.iter().filter(|status| status.is_up()).count();
        let quorum = quorum(statuses.len());
        if connecting.is_empty() || is_over {
            return if connected >= quorum {
                Ok(())
            } else {
                let votes = votes(ballot, statuses, longest_wait);
                Err(ConnectError::Unavailable { connected, quorum, votes })
            };
        }
        if connected >= quorum && !waits_for_slow_nodes {
            waits_for_slow_nodes = true;
            timer.as_mut().reset(Instant::now() + connect_timeout / SLOW_NODE_WAIT_DIVISOR);
        }
        tokio::select! {
            biased;
            _ = connecting.next() => {}
            () = &mut timer => is_over = true,
        }
    }
}

/// Checks that no two nodes have the same store, as far as the nodes know.
fn check_stores(nodes: &[Arc<dyn Node>], statuses: &[NodeStatus]) -> Result<(), ConnectError> {
    let mut seen = HashMap::new();
    for (node, status) in nodes.iter().zip(statuses) {
        let first = match status {
            NodeStatus::Down(NodeError::SameServer(first)) => Some(first),
            _ => node.store_id().and_then(|id| seen.insert(id, node.name())),
        };
        if let Some(first) = first {
            let (first, second) = (Arc::clone(first), Arc::clone(node.name()));
            return Err(ConnectError::SameServer { first, second });
        }
    }
    Ok(())
}

fn votes(ballot: &Ballot, statuses: Vec<NodeStatus>, waited: Duration) -> Votes {
    let vote = |status| match status {
        NodeStatus::Up => Vote::Granted,
        NodeStatus::Down(reason) => Vote::Failed(reason),
        NodeStatus::Connecting => Vote::Failed(NodeError::NoReply(waited)),
    };
    let names = ballot.nodes.iter().map(|node| Arc::clone(node.name()));
    names.zip(statuses.into_iter().map(vote).map(Some)).collect()
}

/// With the feature `redis` and without.
#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_nodes_and_custom_nodes_vote_together() {
        let [first, second, third] = [(); 3].map(|()| MemoryNode::new());
        let builder = LockManager::builder().memory_node(&first).node(second.clone());
        let locks = builder.memory_node(&third).connect().await.unwrap();
        let names = [&first, &second, &third].map(|node| node.name().to_string());
        assert_eq!(locks.nodes().collect::<Vec<_>>(), names);
        let guard = locks.lock("order:42").acquire().await.unwrap();
        assert_eq!([&first, &second, &third].map(MemoryNode::len), [1; 3]);
        guard.release().await.unwrap();
    }

    #[tokio::test]
    async fn wrong_configurations_are_refused() {
        let error = LockManager::builder().connect().await.unwrap_err();
        assert!(matches!(error, ConnectError::NoNodes), "{error}");
        let node = MemoryNode::new();
        let twice = LockManager::builder().memory_node(&node).memory_node(&node);
        let error = twice.connect().await.unwrap_err();
        assert!(matches!(error, ConnectError::SameServer { .. }), "{error}");
        let options = LockManager::builder().memory_node(&node).max_waiters(0);
        let error = options.connect().await.unwrap_err();
        assert!(matches!(error, ConnectError::InvalidOption(_)), "{error}");
    }
}
