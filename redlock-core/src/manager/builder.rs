//! The configuration of a manager.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::lock::Dialect;
use crate::node::memory::MemoryNode;
use crate::node::{Node, Ordered};

const EXPIRE: Duration = Duration::from_secs(30);
/// With a single node there is no other to decide: better late than never.
const NODE_TIMEOUT_OF_ONE: Duration = Duration::from_secs(1);
/// A quorum does not wait for a silent minority. A silent majority is noticed within half a second, also
/// when it falls silent between two replies, which takes a quarter longer.
const NODE_TIMEOUT: Duration = Duration::from_millis(200);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const OUTAGE_GRACE: Duration = Duration::from_secs(2);
const MAX_WAITERS: usize = 1000;

/// The configuration of a [`LockManager`](crate::LockManager).
///
/// | option | default | allowed |
/// |---|---|---|
#[cfg_attr(
    feature = "redis",
    doc = "| [`url`](Self::url), [`urls`](Self::urls), [`memory_node`](Self::memory_node), [`node`](Self::node) | none | 1 to 63 nodes |"
)]
#[cfg_attr(
    not(feature = "redis"),
    doc = "| [`memory_node`](Self::memory_node), [`node`](Self::node) | none | 1 to 63 nodes |"
)]
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
/// # #[cfg(feature = "redis")]
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
    pub(super) nodes: Vec<NodeConfig>,
    pub(super) prefix: String,
    pub(super) dialect: Dialect,
    pub(super) expire: Duration,
    pub(super) node_timeout: Option<Duration>,
    pub(super) connect_timeout: Duration,
    pub(super) max_waiters: usize,
    pub(super) outage_grace: Duration,
    pub(super) restart_guard: Option<Duration>,
    /// The clock that leases are measured on.
    pub(crate) clock: Arc<dyn Clock>,
}

pub(super) enum NodeConfig {
    #[cfg(feature = "redis")]
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
            clock: Arc::new(SystemClock),
        }
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
    /// A prefix with a hash tag, such as `{locks}:`, puts all locks into one slot of a Redis Cluster. By the
    /// rule of Redis Cluster the tag is the text between the first `{` and the next `}`, and it must not be
    /// empty. [Fenced](crate::LockRequest::fenced) locks refuse a prefix with a `{` that begins no hash tag.
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

    pub(super) fn resolved_node_timeout(&self, nodes: usize) -> Duration {
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
    ///   can let a second caller in where the holder has no more than a quorum.
    /// * A step is noticed if it is larger than 50 ms, the mean of the two round trips and 0.1 % of the time
    ///   between the two looks, all together. Smaller steps do not add up, and a clock that runs fast by up
    ///   to a tenth is not noticed.
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
            .field("clock", &self.clock)
            .finish()
    }
}
