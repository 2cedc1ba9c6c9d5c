//! Creates a manager, and waits for its nodes at the start.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::LockManager;
use super::builder::LockManagerBuilder;
use super::config::{LockManagerConfig, NO_OWNER_LABEL};
use crate::ballot::Ballot;
use crate::buffer_space::BufferSpace;
use crate::clock::Clock;
use crate::context::Context;
use crate::error::{ConnectError, NodeError, Vote, Votes};
use crate::home::Home;
use crate::lease::LeaseKeeper;
use crate::limits::Limits;
use crate::lock::{LockOwner, OwnerLabel};
use crate::lock_order::LockOrder;
use crate::log_limit::LogLimit;
use crate::node::{Node, NodeSettings, NodeStatus, Remote, StatusReceiver};
use crate::options::Defaults;
use crate::quorum::quorum;
use crate::telemetry::Telemetry;
use crate::waiting::{FairQueues, Queues};

const MAX_WAITERS: usize = 1000;
const BODY_BUFFERS: usize = 64 << 20;
const OUTAGE_GRACE: Duration = Duration::from_secs(2);

/// Once a quorum is up, `connect` waits for the other nodes for the connect timeout divided by this
/// number, so that a hanging node does not delay the start.
const SLOW_NODE_WAIT_DIVISOR: u32 = 4;

/// After so many connect timeouts, `connect` counts a node that is still connecting as failed. A Redis
/// node fails after one connect timeout; other kinds of nodes have no limit of their own.
const MAX_CONNECT_TIMEOUTS: u32 = 2;

impl LockManagerConfig {
    /// Connects to the nodes and returns the manager, as [`LockManagerBuilder::connect`] does.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::connect`], for example [`ConnectError::NoNodes`] without URLs.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. If the future is dropped, its connections are closed.
    pub async fn connect(&self) -> Result<LockManager, ConnectError> {
        self.builder().connect().await
    }
}

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
        self.check()?;
        #[cfg(feature = "tls")]
        self.check_tls().await?;
        let nodes = self.create_nodes().await?;
        let settings = self.node_settings();
        let clock = Arc::clone(&self.clock);
        let manager = self.build(nodes, clock);
        let Context { ballot, limits, defaults, connect_timeout, .. } = &*manager.context;
        limits.check_manager(&settings, defaults)?;
        let count = ballot.nodes.len();
        if count % 2 == 0 {
            tracing::warn!(
                nodes = count,
                quorum = quorum(count),
                "an even number of nodes tolerates no more failures than one node less, and fails more often; use an odd number"
            );
        }
        for node in &*ballot.nodes {
            node.start(&Handle::current(), &settings);
        }
        wait_for_quorum(ballot, *connect_timeout).await?;
        Ok(manager)
    }

    /// Returns a manager with the nodes and the clock of a test, and a `node_timeout` of 50 ms.
    #[cfg(test)]
    pub(crate) fn with_nodes(nodes: Vec<Arc<dyn Node>>, clock: Arc<dyn Clock>) -> LockManager {
        LockManager::builder().node_timeout(Duration::from_millis(50)).build(nodes, clock)
    }

    fn node_settings(&self) -> NodeSettings {
        let LockManagerConfig { restart_guard, failover_margin, .. } = self.config;
        NodeSettings {
            node_timeout: self.resolved_node_timeout(self.nodes.len()),
            connect_timeout: self.resolved_connect_timeout(),
            restart_guard,
            failover_margin,
            clock: Arc::clone(&self.clock),
        }
    }

    pub(crate) fn build(self, nodes: Vec<Arc<dyn Node>>, clock: Arc<dyn Clock>) -> LockManager {
        let (expire, node_timeout) =
            (self.resolved_expire(), self.resolved_node_timeout(nodes.len()));
        let connect_timeout = self.resolved_connect_timeout();
        let LockManagerConfig {
            prefix,
            owner_label,
            dialect,
            max_waiters,
            body_buffers,
            outage_grace,
            restart_guard,
            lock_order,
            ..
        } = self.config;
        let max_waiters = max_waiters.unwrap_or(MAX_WAITERS);
        let outage_grace = outage_grace.unwrap_or(OUTAGE_GRACE);
        let log_limit = Arc::new(LogLimit::new(Arc::clone(&clock)));
        let home = Arc::<Home>::default();
        let (started, end_on_drop) = (clock.unix_time(), home.gone.clone().drop_guard());
        let ballot = Ballot::new(nodes, node_timeout, clock, Arc::clone(&home));
        let queues = Arc::new(Queues::new(
            Arc::clone(&home),
            ballot.clone(),
            max_waiters,
            outage_grace,
            Arc::clone(&log_limit),
        ));
        let fair = FairQueues::new(Arc::clone(&queues), Arc::clone(&log_limit));
        let prefix = prefix.unwrap_or_default().into();
        let limits = Limits::new(&ballot.nodes, &prefix, restart_guard);
        let servers = ballot.nodes.iter().filter(|node| node.remote().is_some());
        let telemetry = Arc::new(Telemetry::new(servers.map(|node| Arc::clone(node.name()))));
        let context = Arc::new(Context {
            keeper: Arc::new(LeaseKeeper::default()),
            queues,
            fair,
            home,
            ballot,
            prefix,
            owner: owner(owner_label.as_deref()),
            started,
            defaults: Defaults { expire, dialect: dialect.unwrap_or_default() },
            limits,
            telemetry,
            order: lock_order.unwrap_or(true).then(LockOrder::new),
            log_limit,
            connect_timeout,
            body_buffers: BufferSpace::new(body_buffers.unwrap_or(BODY_BUFFERS)),
            _end_on_drop: end_on_drop,
        });
        context.enter();
        LockManager { context }
    }
}

/// Returns the owner of the locks of a manager. The setting was checked before.
fn owner(setting: Option<&str>) -> LockOwner {
    LockOwner::new(match setting {
        None => Some(OwnerLabel::of_process()),
        Some(NO_OWNER_LABEL) => None,
        Some(label) => OwnerLabel::read(label),
    })
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
    let quorum = quorum(ballot.nodes.len());
    let mut waits_for_slow_nodes = false;
    loop {
        let is_over = tokio::select! {
            biased;
            decided = connecting.next() => decided.is_none(),
            () = &mut timer => true,
        };
        let statuses: Vec<_> = ballot.statuses.iter().map(StatusReceiver::get).collect();
        check_stores(&ballot.nodes, &statuses)?;
        let connected = statuses.iter().filter(|status| status.is_up()).count();
        match (connected >= quorum, is_over) {
            (true, true) => return Ok(()),
            (false, true) => {
                let votes = votes(ballot, statuses, longest_wait);
                let question = question(&ballot.nodes, &votes);
                return Err(ConnectError::Unavailable { connected, quorum, votes, question });
            }
            (true, false) if !waits_for_slow_nodes => {
                waits_for_slow_nodes = true;
                timer.as_mut().reset(Instant::now() + connect_timeout / SLOW_NODE_WAIT_DIVISOR);
            }
            (_, false) => {}
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
        NodeStatus::Up => Vote::Agreed,
        NodeStatus::Down(reason) => Vote::Failed(reason),
        NodeStatus::Connecting => Vote::Failed(NodeError::NoReply(waited)),
    };
    let names = ballot.nodes.iter().map(|node| Arc::clone(node.name()));
    names.zip(statuses.into_iter().map(vote).map(Some)).collect()
}

/// Asks the operator whether the stores run that were not reached. A server that has refused the client, because of a
/// wrong password for instance, was reached.
fn question(nodes: &[Arc<dyn Node>], votes: &Votes) -> Option<String> {
    let mut unreached = BTreeMap::<_, Vec<_>>::new();
    for (node, (name, vote)) in nodes.iter().zip(votes.iter()) {
        if let Some(Vote::Failed(NodeError::NotConnected(_))) = vote
            && let Some(product) = node.remote().and_then(Remote::product)
        {
            unreached.entry(product).or_default().push(name);
        }
    }
    let question =
        |(product, names): (_, &Vec<_>)| format!("is {product} running at {}", names.join(", "));
    let questions: Vec<_> = unreached.iter().map(question).collect();
    (!questions.is_empty()).then(|| format!("{}?", questions.join(", ")))
}

/// With the feature `redis` and without.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryNode;
    use crate::clock::fake::RuntimeClock;
    use crate::node::deferring::DeferringNode;

    #[tokio::test]
    async fn memory_nodes_and_custom_nodes_vote_together() {
        let [first, second, third] = [(); 3].map(|()| MemoryNode::new());
        let builder = LockManager::builder().memory_node(&first).node(second.clone());
        let locks = builder.memory_node(&third).connect().await.unwrap();
        let names = [&first, &second, &third].map(|node| node.name().to_string());
        assert_eq!(locks.nodes().collect::<Vec<_>>(), names);
        let guard = locks.lock("order:42").try_acquire().await.unwrap();
        assert_eq!([&first, &second, &third].map(MemoryNode::len), [1; 3]);
        guard.release().await.unwrap();
    }

    /// A quorum suffices to start. The other nodes get a quarter of the connect timeout, however many of them come up
    /// meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_start_waits_briefly_for_the_nodes_behind_a_quorum() {
        let nodes = [(); 5].map(|()| Arc::new(DeferringNode::new().0));
        for late in &nodes[3..] {
            late.status.send(NodeStatus::Connecting);
        }
        let votes = nodes.iter().map(|node| Arc::<DeferringNode>::clone(node) as _).collect();
        let locks = LockManagerBuilder::with_nodes(votes, Arc::new(RuntimeClock::new()));
        let started = Instant::now();
        let waiting = wait_for_quorum(&locks.context.ballot, Duration::from_secs(4));
        let comes_up = async {
            sleep(Duration::from_millis(900)).await;
            nodes[3].status.send(NodeStatus::Up);
        };
        let (result, ()) = tokio::join!(waiting, comes_up);
        result.unwrap();
        assert_eq!(started.elapsed(), Duration::from_secs(1));
    }

    /// The message is the first that a newcomer reads who has not started a server.
    #[tokio::test]
    async fn the_error_asks_whether_the_stores_run_that_were_not_reached() {
        let refused = || NodeError::NotConnected("refused".into());
        let (mut names, mut builder) = (Vec::new(), LockManager::builder());
        for (product, reason) in [
            (Some("Redis"), refused()),
            (Some("Redis"), NodeError::NotPermitted("NOAUTH".into())),
            (Some("PostgreSQL"), refused()),
            (Some("Redis"), refused()),
            (None, refused()),
        ] {
            let mut node = DeferringNode::new().0;
            node.product = product;
            node.status.send(NodeStatus::Down(reason));
            names.push(node.store.name().to_string());
            builder = builder.node(node);
        }
        let error = builder.connect().await.unwrap_err().to_string();
        let [first, _, other, second, ..] = &names[..] else { panic!("{names:?}") };
        let expected = format!(
            "refused; is PostgreSQL running at {other}, is Redis running at {first}, {second}?"
        );
        assert!(error.ends_with(&expected), "{error}");

        let node = DeferringNode::new().0;
        node.status.send(NodeStatus::Down(refused()));
        let error = LockManager::builder().node(node).connect().await.unwrap_err().to_string();
        assert!(error.ends_with("not connected: refused"), "{error}");
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
