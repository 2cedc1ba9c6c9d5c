//! The configuration of a manager.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use super::connect::wait_for_quorum;
use super::{LockManager, Shared, check_guarded};
use crate::ballot::{Aftercare, Ballot};
use crate::clock::{Clock, SystemClock};
use crate::error::{ConnectError, InvalidOption};
use crate::lease::{Background, Keeper};
use crate::lock::Dialect;
use crate::log_limit::LogLimit;
use crate::node::memory::MemoryNode;
use crate::node::redis::{Endpoint, RedisNode, Servers};
use crate::node::{LeaseRange, Node, Ordered};
use crate::queue::Queues;
use crate::request::check_expire;
use crate::runtimes::Runtimes;
use crate::{telemetry, validity};

const EXPIRE: Duration = Duration::from_secs(30);
/// With a single node there is no other to decide: better late than never.
const NODE_TIMEOUT_OF_ONE: Duration = Duration::from_secs(1);
/// A quorum does not wait for a silent minority. A silent majority is noticed within half a second, also
/// when it falls silent between two replies, which takes a quarter longer.
const NODE_TIMEOUT: Duration = Duration::from_millis(200);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_PREFIX: usize = 100;
const OUTAGE_GRACE: Duration = Duration::from_secs(2);
const MAX_WAITERS: usize = 1000;
/// More would not make it safer, only slower; a attempt remembers the nodes it asked in 64 bits.
const MAX_NODES: usize = 63;

/// The configuration of a [`LockManager`].
///
/// | option | default | allowed |
/// |---|---|---|
/// | [`url`](Self::url), [`urls`](Self::urls), [`memory_node`](Self::memory_node), [`node`](Self::node) | none | 1 to 63 nodes |
/// | [`prefix`](Self::prefix) | none | up to 100 bytes without control characters |
/// | [`dialect`](Self::dialect) | [`Plain`](Dialect::Plain) | |
/// | [`expire`](Self::expire) | 30 s | 10 ms to 7 days |
/// | [`node_timeout`](Self::node_timeout) | 1 s with one node, 200 ms with several; half of `expire` if that is shorter | 1 ms to 60 s |
/// | [`connect_timeout`](Self::connect_timeout) | 1 s | 1 ms to 60 s |
/// | [`max_waiters`](Self::max_waiters) | 1000 | at least 1 |
/// | [`outage_grace`](Self::outage_grace) | 2 s | 0 to 60 s |
/// | [`restart_guard`](Self::restart_guard) | none | 10 ms to 7 days |
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use redlock_core::LockManager;
///
/// # async fn run() -> Result<(), redlock_core::ConnectError> {
/// let locks = LockManager::builder()
///     .url("redis://:secret@10.0.0.1:6379/3")
///     .url("unix:///run/redis/redis.sock")
///     .url("redis://10.0.0.3")
///     .prefix("shop:")
///     .node_timeout(Duration::from_millis(20))
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "a builder does nothing until `connect` is awaited"]
pub struct LockManagerBuilder {
    nodes: Vec<NodeConfig>,
    prefix: String,
    dialect: Dialect,
    expire: Duration,
    node_timeout: Option<Duration>,
    connect_timeout: Duration,
    max_waiters: usize,
    outage_grace: Duration,
    restart_guard: Option<Duration>,
}

enum NodeConfig {
    Url(String),
    Memory(MemoryNode),
    Node(Arc<dyn Node>),
}

impl LockManagerBuilder {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            prefix: String::new(),
            dialect: Dialect::default(),
            expire: EXPIRE,
            node_timeout: None,
            connect_timeout: CONNECT_TIMEOUT,
            max_waiters: MAX_WAITERS,
            outage_grace: OUTAGE_GRACE,
            restart_guard: None,
        }
    }

    /// Adds a node: an independent Redis or Valkey server.
    ///
    /// `redis://[user][:password@]host[:port][/database]`, `rediss://...` for TLS (feature `tls`),
    /// or `unix:///path/to/socket[?db=..&user=..&pass=..]`. The nodes of one manager must not
    /// replicate each other.
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.nodes.push(NodeConfig::Url(url.as_ref().to_owned()));
        self
    }

    /// Adds several nodes, see [`url`](Self::url).
    pub fn urls<I>(self, urls: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        urls.into_iter().fold(self, Self::url)
    }

    /// Adds a node in the memory of this process. Managers that are given clones of one
    /// [`MemoryNode`] exclude each other.
    pub fn memory_node(mut self, node: &MemoryNode) -> Self {
        self.nodes.push(NodeConfig::Memory(node.clone()));
        self
    }

    /// Adds a node of another kind, see [`node`](crate::node). A node that is not
    /// [ordered](crate::node::Capabilities::ordered) is wrapped by [`Ordered`].
    ///
    /// A store must not be added twice, because its vote would count twice. The manager cannot find that
    /// out by itself.
    pub fn node(mut self, node: impl Node) -> Self {
        self.nodes.push(NodeConfig::Node(if node.capabilities().ordered {
            Arc::new(node)
        } else {
            Arc::new(Ordered::new(node))
        }));
        self
    }

    /// Sets what stands before every key on the nodes, so that several applications can share them.
    /// Defaults to nothing, which is what other languages' libraries lock too.
    ///
    /// On a server in cluster mode [fenced](crate::LockRequest::fenced) locks need a prefix with a hash
    /// tag, such as `{locks}:`. By the rule of Redis Cluster this is the text between the first `{` and
    /// the next `}`, and it must not be empty.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how locks are written down on the nodes: which other languages' libraries lock the same
    /// way. Defaults to [`Dialect::Plain`]; a request may [say otherwise](crate::LockRequest::dialect).
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Sets the lease of a lock whose request names none; such a lease is renewed every third of
    /// it. Defaults to 30 s.
    pub fn expire(mut self, expire: Duration) -> Self {
        self.expire = expire;
        self
    }

    /// Sets how long a node may be silent. A node that owes an answer and has sent nothing for this time
    /// counts as failed, and the other nodes decide.
    ///
    /// Only the time of the node counts. A command that was not sent yet and a reply that was not read
    /// yet, because this process is busy or was stopped, are not the node's. A node that works through a
    /// long queue and goes on answering is not silent either. An acquisition therefore takes longer than
    /// this where the process is late, but never longer than its lease: then it fails with
    /// [`LockError::TimedOut`](crate::LockError::TimedOut).
    ///
    /// Choose several round trips, and less than the lease. The server may share its processor with
    /// others: on a busy machine it stands still for tens of milliseconds. From 1 ms to 60 s. Defaults
    /// to 1 s with one node, because there is no other to ask, and to 200 ms with several; to half of
    /// [`expire`](Self::expire) if that is shorter.
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.node_timeout = Some(node_timeout);
        self
    }

    fn resolved_node_timeout(&self, nodes: usize) -> Duration {
        let default = if nodes > 1 { NODE_TIMEOUT } else { NODE_TIMEOUT_OF_ONE };
        self.node_timeout.unwrap_or(default.min(self.expire / 2))
    }

    /// Sets how long a connection attempt to a node may take. Defaults to 1 s.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets how many callers of this manager may wait for one key; one more is refused with
    /// [`LockError::TooManyWaiters`](crate::LockError::TooManyWaiters), so that one hot key does not
    /// eat the service. Defaults to 1000.
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.max_waiters = max_waiters;
        self
    }

    /// Sets how long callers that already wait for a lock keep their place while no quorum of nodes
    /// answers, counted from the first question without a quorum: a dropped connection or a restart
    /// of the servers then costs them time, and no error. After the grace they fail with
    /// [`LockError::Unavailable`](crate::LockError::Unavailable), each at its next attempt.
    ///
    /// A caller waits already when the nodes have refused it because another holds the lock, or when
    /// it queues behind another caller of this manager. Everybody else learns of an outage within one
    /// attempt: [`try_acquire`](crate::LockRequest::try_acquire), a request without
    /// [`wait_time`](crate::LockRequest::wait_time), and a request that comes during the outage. The
    /// grace belongs to the outage: all callers of a key share it, and it never extends a `wait_time`.
    /// A missing right on the servers is no outage.
    ///
    /// From 0, which switches it off, to 60 s. Defaults to 2 s.
    pub fn outage_grace(mut self, outage_grace: Duration) -> Self {
        self.outage_grace = outage_grace;
        self
    }

    /// Keeps a server that was restarted from granting locks until it has been running for
    /// `longest_lease`, and one whose wall clock was stepped forward for `longest_lease` from then on.
    /// One that came back without its data has forgotten who holds what, and would help a second
    /// caller to a lock that is held; so would one that counts leases by a clock that has jumped. This
    /// is the delayed restart of the
    /// [Redis documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/),
    /// for servers that are not restarted by hand. Defaults to none: servers are trusted to keep
    /// their locks (`appendonly yes` with `appendfsync always`), or to be kept away.
    ///
    /// Meanwhile the node's vote on a new lock is
    /// [`NodeError::Restarted`](crate::NodeError::Restarted) or
    /// [`NodeError::ClockStepped`](crate::NodeError::ClockStepped), which say how long it will be; the
    /// others decide. It is still asked to extend and to release what it has kept. What it has
    /// forgotten is lost if a quorum has forgotten it, and otherwise set again when it votes again,
    /// if it is renewed.
    ///
    /// * `longest_lease` is the longest that anybody asks for on these servers, other services
    ///   included. A longer one is an error here: as the default [`expire`](Self::expire), of a
    ///   request, and of [`extend`](crate::LockGuard::extend).
    /// * [`connect`](Self::connect) does not wait for it. Where a quorum of the servers was started
    ///   a moment ago, for instance all of them for the first time, requests fail with
    ///   [`LockError::Unavailable`](crate::LockError::Unavailable) until they have been running for
    ///   long enough.
    /// * The server tells its uptime (`INFO server`) in whole seconds, so that it may grant locks up
    ///   to two seconds later than it could. One that does not tell, because the user has no right
    ///   to `INFO`, votes when the connection to it has lasted for `longest_lease`, and after each
    ///   reconnect has to wait again.
    /// * The server's clock (`TIME`) is compared with the one here twice a second, whether locks are
    ///   asked for or not, and at each connect. What a server grants after a step and before the next
    ///   look counts, so that steps of several servers must be further apart than that, and one alone
    ///   can let a second caller in where the holder has no more than a quorum. A step is
    ///   found if it is larger than 50 ms (less is taken for a correction), the time that asking takes,
    ///   and what clocks may run apart since the look before, all together. That is 1 % (5 ms, unless the
    ///   server was out of reach), and a thousandth of what a silence lasts beyond its first minute. A
    ///   clock that runs faster than that is found when it has gained as much as a step.
    /// * A step that is too small for that ends leases on that server early by its size. Leases of 5 s
    ///   and more have a margin of 50 ms, which also has to cover how far clocks run apart. The
    ///   holder of a shorter one can overlap with the next one by what is missing, and no longer than
    ///   the step was. So can a holder whose lock was set between a step back and one forward, with no
    ///   look in between: together they are no step, and the lease ends early by the second.
    /// * Neither a step before the first connect is noticed, nor one of a server that does not tell its
    ///   time, because the user has no right to `TIME`: that is warned of.
    /// * A step back is only told: such a server keeps locks for longer, and lets nobody in. Without
    ///   the guard a step forward is only told, too.
    /// * After this machine was suspended, or moved to another host, with its clocks standing still,
    ///   all servers seem to be stepped forward, and grant it nothing for `longest_lease`.
    /// * It does not help against other ways to forget: `FLUSHALL`, eviction, a replica that becomes
    ///   the master, a proxy that leads one connection to several servers.
    ///
    /// Nodes in memory are not concerned.
    pub fn restart_guard(mut self, longest_lease: Duration) -> Self {
        self.restart_guard = Some(longest_lease);
        self
    }

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
        manager.shared.check_expire(manager.shared.expire)?;
        for node in &redis_nodes {
            manager.shared.runtimes.serve(node);
        }
        wait_for_quorum(&manager.shared.ballot, connect_timeout).await?;
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
        let background = Background::new(Arc::clone(&clock), &runtimes);
        let aftercare: Arc<dyn Aftercare> = Arc::<Background>::clone(&background);
        let log_limit = Arc::new(LogLimit::new(Arc::clone(&clock)));
        let leases = LeaseRange::of(&nodes);
        let ballot = Ballot::new(nodes, node_timeout, clock, aftercare);
        let keeper = Arc::new(Keeper::new(ballot.clone()));
        runtimes.serve(&keeper);
        let shared = Shared {
            keeper,
            runtimes,
            queues: Arc::new(Queues::new(ballot.clone(), max_waiters, outage_grace)),
            ballot,
            background,
            prefix: prefix.into(),
            dialect,
            expire,
            log_limit,
            leases,
            restart_guard,
            connect_timeout,
            closed: AtomicBool::new(false),
            settled_moves: AtomicU64::new(0),
        };
        LockManager { shared: Arc::new(shared) }
    }

    fn check(&self) -> Result<(), ConnectError> {
        if self.nodes.is_empty() {
            return Err(ConnectError::NoNodes);
        }
        check_expire("expire", self.expire)?;
        if let Some(longest_lease) = self.restart_guard {
            check_expire("restart_guard", longest_lease)?;
            check_guarded(self.expire, self.restart_guard)?;
        }
        let node_timeout = self.resolved_node_timeout(self.nodes.len());
        check_timeout("node_timeout", node_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        if self.nodes.len() > MAX_NODES {
            let allowed = format!("at most {MAX_NODES}");
            return Err(InvalidOption::new("nodes", self.nodes.len().to_string(), allowed).into());
        }
        if self.outage_grace > LONGEST_TIMEOUT {
            let value = format!("{:?}", self.outage_grace);
            return Err(InvalidOption::new("outage_grace", value, "from 0 to 60 s").into());
        }
        if self.max_waiters == 0 {
            return Err(InvalidOption::new("max_waiters", "0", "at least 1").into());
        }
        if validity::remaining(self.expire, node_timeout).is_zero() {
            return Err(InvalidOption::new(
                "node_timeout",
                format!("{node_timeout:?}"),
                format!("shorter than the lease (expire) of {:?}", self.expire),
            )
            .into());
        }
        if self.prefix.len() > LONGEST_PREFIX || self.prefix.contains(char::is_control) {
            let allowed = format!("at most {LONGEST_PREFIX} bytes without control characters");
            return Err(InvalidOption::new("prefix", format!("{:?}", self.prefix), allowed).into());
        }
        Ok(())
    }
}

fn check_timeout(option: &'static str, timeout: Duration) -> Result<(), InvalidOption> {
    if (Duration::from_millis(1)..=LONGEST_TIMEOUT).contains(&timeout) {
        Ok(())
    } else {
        Err(InvalidOption::new(option, format!("{timeout:?}"), "from 1 ms to 60 s"))
    }
}

fn check_memory_nodes(nodes: &[NodeConfig]) -> Result<(), ConnectError> {
    let mut seen: Vec<&MemoryNode> = Vec::new();
    for config in nodes {
        let NodeConfig::Memory(node) = config else {
            continue;
        };
        if let Some(first) = seen.iter().find(|first| first.is_same(node)) {
            return Err(ConnectError::SameServer {
                first: Arc::clone(first.name()),
                second: Arc::clone(node.name()),
            });
        }
        seen.push(node);
    }
    Ok(())
}

impl fmt::Debug for LockManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URLs: they may hold passwords.
        f.debug_struct("LockManagerBuilder")
            .field("nodes", &self.nodes.len())
            .field("prefix", &self.prefix)
            .field("dialect", &self.dialect)
            .field("expire", &self.expire)
            .field("node_timeout", &self.node_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("max_waiters", &self.max_waiters)
            .field("outage_grace", &self.outage_grace)
            .field("restart_guard", &self.restart_guard)
            .finish()
    }
}
