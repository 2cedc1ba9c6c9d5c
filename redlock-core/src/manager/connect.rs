//! Making a manager, and waiting for its nodes at the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep;

use super::LockManager;
use super::builder::{LockManagerBuilder, NodeConfig};
use super::check::check_memory_nodes;
use crate::ballot::{Ballot, Cleanup};
use crate::clock::{Clock, SystemClock};
use crate::context::Context;
use crate::error::{ConnectError, NodeError, Vote, Votes};
use crate::lease::{CleanupTasks, Keeper};
use crate::log_limit::LogLimit;
use crate::node::memory::MemoryNode;
use crate::node::redis::{Endpoint, RedisNode, Servers};
use crate::node::{LeaseRange, Node, NodeStatus, StatusReceiver};
use crate::queue::Queues;
use crate::quorum::quorum;
use crate::runtimes::Runtimes;
use crate::telemetry;

/// Once a quorum is up, the other nodes are waited for no longer than the connect timeout divided by this:
/// a node that hangs must not hold up a start.
const LAGGARDS: u32 = 4;

impl LockManagerBuilder {
    /// Connects to all nodes at once and makes the manager.
    ///
    /// Starts with a quorum: nodes that cannot be reached are logged, and tried again in the
    /// background for as long as the manager lives. Has to be called in a Tokio runtime with its
    /// I/O and time drivers enabled.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`] for a wrong configuration, for two nodes that are the same server, and
    /// where no quorum can be connected to.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: connections made so far are closed.
    pub async fn connect(self) -> Result<LockManager, ConnectError> {
        self.connect_by(Arc::new(SystemClock), Endpoint::parse).await
    }

    /// Connects to the endpoints that `endpoint` makes of the URLs, and measures leases by `clock`.
    pub(crate) async fn connect_by(
        self,
        clock: Arc<dyn Clock>,
        endpoint: impl Fn(&str) -> Result<Endpoint, String>,
    ) -> Result<LockManager, ConnectError> {
        self.check()?;
        let mut nodes: Vec<Arc<dyn Node>> = Vec::with_capacity(self.nodes.len());
        let mut redis_nodes = Vec::new();
        let servers = Arc::default();
        for (index, config) in self.nodes.iter().enumerate() {
            let endpoint = match config {
                NodeConfig::Memory(node) => {
                    nodes.push(Arc::new(node.clone()));
                    continue;
                }
                NodeConfig::Node(node) => {
                    nodes.push(Arc::clone(node));
                    continue;
                }
                NodeConfig::Url(url) => endpoint(url)
                    .map_err(|reason| ConnectError::InvalidUrl { position: index + 1, reason })?,
            };
            let node = self.redis_node(endpoint, &clock, &servers);
            redis_nodes.push(Arc::clone(&node));
            nodes.push(node);
        }
        check_memory_nodes(&self.nodes)?;
        let connect_timeout = self.connect_timeout;
        let manager = self.wire(nodes, clock);
        manager.context.check_expire(manager.context.expire)?;
        for node in &redis_nodes {
            manager.context.runtimes.serve(node);
        }
        wait_for_quorum(&manager.context.ballot, connect_timeout).await?;
        Ok(manager)
    }

    fn redis_node(
        &self,
        endpoint: Endpoint,
        clock: &Arc<dyn Clock>,
        servers: &Arc<Servers>,
    ) -> Arc<RedisNode> {
        RedisNode::new(
            endpoint,
            self.resolved_node_timeout(self.nodes.len()),
            self.connect_timeout,
            self.restart_guard,
            Arc::clone(clock),
            servers,
        )
    }

    pub(super) fn in_memory() -> LockManager {
        Self::new().wire(vec![Arc::new(MemoryNode::new())], Arc::new(SystemClock))
    }

    /// A manager over nodes and a clock of a test's own, with a `node_timeout` of 50 ms.
    #[cfg(test)]
    pub(crate) fn over(nodes: Vec<Arc<dyn Node>>, clock: Arc<dyn Clock>) -> LockManager {
        Self::new().node_timeout(Duration::from_millis(50)).wire(nodes, clock)
    }

    pub(crate) fn wire(self, nodes: Vec<Arc<dyn Node>>, clock: Arc<dyn Clock>) -> LockManager {
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
        } = self;
        telemetry::describe();
        let runtimes = Runtimes::new();
        runtimes.check_in();
        let cleanup_tasks = CleanupTasks::new(Arc::clone(&clock), &runtimes);
        let cleanup: Arc<dyn Cleanup> = Arc::<CleanupTasks>::clone(&cleanup_tasks);
        let log_limit = Arc::new(LogLimit::new(Arc::clone(&clock)));
        let leases = LeaseRange::of(&nodes);
        let cannot_fence = nodes.iter().find(|node| !node.capabilities().fencing);
        let cannot_fence = cannot_fence.map(|node| Arc::clone(node.name()));
        let ballot = Ballot::new(nodes, node_timeout, clock, cleanup);
        let keeper = Arc::new(Keeper::new(ballot.clone()));
        runtimes.serve(&keeper);
        let context = Context {
            keeper,
            runtimes,
            queues: Arc::new(Queues::new(ballot.clone(), max_waiters, outage_grace)),
            ballot,
            cleanup_tasks,
            prefix: prefix.into(),
            dialect,
            expire,
            log_limit,
            leases,
            cannot_fence,
            restart_guard,
            connect_timeout,
            closed: AtomicBool::new(false),
            settled_moves: AtomicU64::new(0),
        };
        LockManager { context: Arc::new(context) }
    }
}

/// Waits until a quorum of nodes is up. Fails when every node has either been reached or has failed to
/// connect once, and no quorum is up.
async fn wait_for_quorum(ballot: &Ballot, connect_timeout: Duration) -> Result<(), ConnectError> {
    let is_decided = |status: &NodeStatus| !matches!(status, NodeStatus::Connecting);
    let mut connecting: FuturesUnordered<_> =
        ballot.statuses.iter().map(|status| status.wait_for(is_decided)).collect();
    let mut laggards = std::pin::pin!(None);
    loop {
        let statuses: Vec<_> = ballot.statuses.iter().map(StatusReceiver::get).collect();
        for (node, status) in ballot.nodes.iter().zip(&statuses) {
            if let NodeStatus::Down(NodeError::SameServer(other)) = status {
                let (first, second) = (Arc::clone(other), Arc::clone(node.name()));
                return Err(ConnectError::SameServer { first, second });
            }
        }
        let connected = statuses.iter().filter(|status| status.is_up()).count();
        let quorum = quorum(statuses.len());
        if connecting.is_empty() {
            return if connected >= quorum {
                Ok(())
            } else {
                Err(ConnectError::Unavailable { connected, quorum, votes: votes(ballot, statuses) })
            };
        }
        if connected >= quorum && laggards.is_none() {
            laggards.set(Some(sleep(connect_timeout / LAGGARDS)));
        }
        match laggards.as_mut().as_pin_mut() {
            None => drop(connecting.next().await),
            Some(timeout) => {
                tokio::select! {
                    biased;
                    _ = connecting.next() => {}
                    () = timeout => return Ok(()),
                }
            }
        }
    }
}

fn votes(ballot: &Ballot, statuses: Vec<NodeStatus>) -> Votes {
    let vote = |status| match status {
        NodeStatus::Up => Some(Vote::Granted),
        NodeStatus::Down(reason) => Some(Vote::Failed(reason)),
        NodeStatus::Connecting => None,
    };
    let names = ballot.nodes.iter().map(|node| Arc::clone(node.name()));
    names.zip(statuses.into_iter().map(vote)).collect()
}
