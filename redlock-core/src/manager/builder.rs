//! The options of a manager.

#[cfg(feature = "unstable-simulation")]
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::config::{LockManagerConfig, NodeUrl};
use crate::access::{Pem, ProviderFn, TlsOptions};
use crate::clock::{Clock, SystemClock};
use crate::lock::Dialect;
use crate::node::{Node, Ordered};
#[cfg(feature = "unstable-simulation")]
use crate::store::kit::dial::Dial;
use crate::store::memory::MemoryNode;

const EXPIRE: Duration = Duration::from_secs(30);
/// The default with one node, where a late reply is better than none: no other node can decide.
const SINGLE_NODE_TIMEOUT: Duration = Duration::from_secs(1);
/// The default with several nodes. A quorum does not wait for a silent minority. A silent majority is
/// noticed within half a second, even if it falls silent between two replies, which takes a quarter
/// longer.
const NODE_TIMEOUT: Duration = Duration::from_millis(200);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Configures a [`LockManager`](crate::LockManager).
///
/// | option | default | allowed |
/// |---|---|---|
/// | [`url`](Self::url), [`urls`](Self::urls), [`memory_node`](Self::memory_node), [`node`](Self::node) | none | 1 to 63 nodes |
/// | [`prefix`](Self::prefix) | none | up to 100 bytes without control characters |
/// | [`owner_label`](Self::owner_label) | host name and process id | 1 to 64 printable ASCII characters without blanks |
/// | [`dialect`](Self::dialect) | [`Plain`](Dialect::Plain) | |
/// | [`expire`](Self::expire) | 30 s, or the longest lease that all nodes grant if that is shorter | 10 ms to 7 days |
/// | [`node_timeout`](Self::node_timeout) | 1 s with one node, 200 ms with several; half of `expire` if that is shorter | 1 ms to 60 s |
/// | [`connect_timeout`](Self::connect_timeout) | 1 s | 1 ms to 60 s |
/// | [`max_waiters`](Self::max_waiters) | 1000 | at least 1 |
/// | [`body_buffers`](Self::body_buffers) | 64 MiB | at least 1 byte |
/// | [`outage_grace`](Self::outage_grace) | 2 s | 0 to 60 s |
/// | [`restart_guard`](Self::restart_guard) | none | 10 ms to 7 days |
/// | [`failover_margin`](Self::failover_margin) | Sentinel: `min-replicas-max-lag` of the servers, and 2 s; cluster: `cluster-node-timeout`, and 1 s | 0 to 60 s, only with `restart_guard` |
/// | [`cluster_refresh`](Self::cluster_refresh) | 5 s | 100 ms to 60 s |
/// | [`lock_order`](Self::lock_order) | true | |
/// | [`credentials`](Self::credentials) | those of the URLs | |
#[cfg_attr(
    feature = "tls",
    doc = "| [`tls`](Self::tls) | the system's root certificates, no client certificate | |"
)]
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
    /// Its URLs are among the nodes, and its files of TLS are in `tls`.
    pub(super) config: LockManagerConfig,
    pub(super) tls: Option<TlsOptions>,
    pub(super) credentials: Option<ProviderFn>,
    /// The clock on which leases are measured.
    pub(crate) clock: Arc<dyn Clock>,
    /// The networks that replace the operating system's, by the names of the nodes.
    #[cfg(feature = "unstable-simulation")]
    pub(super) dials: BTreeMap<String, Arc<dyn Dial>>,
}

#[derive(Debug)]
pub(super) enum NodeConfig {
    Url(NodeUrl),
    Node(Arc<dyn Node>),
}

impl LockManagerConfig {
    /// Returns a builder with these settings, to which the service can add others, such as
    /// [nodes in memory](LockManagerBuilder::memory_node) and [custom nodes](LockManagerBuilder::node).
    pub fn builder(&self) -> LockManagerBuilder {
        let mut config = self.clone();
        let urls = std::mem::take(&mut config.urls);
        let [ca, cert, key] = [&mut config.tls_ca, &mut config.tls_cert, &mut config.tls_key]
            .map(|path| path.take().map(Pem::File));
        let tls = TlsOptions { ca, cert, key, insecure: None };
        LockManagerBuilder {
            nodes: urls.into_iter().map(NodeConfig::Url).collect(),
            config,
            tls: (tls != TlsOptions::default()).then_some(tls),
            credentials: None,
            clock: Arc::new(SystemClock),
            #[cfg(feature = "unstable-simulation")]
            dials: BTreeMap::new(),
        }
    }
}

impl LockManagerBuilder {
    /// Adds a node in the memory of this process. Managers with clones of one [`MemoryNode`] exclude
    /// each other.
    pub fn memory_node(self, node: &MemoryNode) -> Self {
        self.node(node.clone())
    }

    /// Adds a custom node, see [`node`](crate::node). A node that is not
    /// [ordered](crate::node::Capabilities::ordered) is wrapped in [`Ordered`].
    ///
    /// Do not add a store twice: its vote would count twice. [`connect`](Self::connect) notices it only if the node knows
    /// the [ID of its store](Node::store_id).
    pub fn node(mut self, node: impl Node) -> Self {
        let is_ordered = node.capabilities().ordered;
        let node: Arc<dyn Node> =
            if is_ordered { Arc::new(node) } else { Arc::new(Ordered::new(node)) };
        self.nodes.push(NodeConfig::Node(node));
        self
    }

    /// Sets the prefix of all keys on the nodes, so that several applications can share the nodes. At
    /// most 100 bytes without control characters. Defaults to no prefix, as in the libraries of other
    /// languages.
    ///
    /// A prefix with a hash tag, such as `{locks}:`, puts all locks into one slot of a Redis Cluster.
    /// The tag is the text between the first `{` and the next `}`, and must not be empty (the rule of
    /// Redis Cluster). On Redis nodes, [fenced](crate::LockRequest::fenced) and
    /// [fair](crate::LockRequest::fair) locks refuse a prefix with a `{` that begins no hash tag.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.prefix = Some(prefix.into());
        self
    }

    /// Sets the label of this manager, which the nodes store with each of its locks. A refusal, a status and a snapshot show it,
    /// so that an operator knows which process holds a lock.
    ///
    /// 1 to 64 printable ASCII characters without blanks (`!` to `~`). The word `off` stores neither a label nor the time since
    /// which a lock is held. Another text is an error of [`connect`](Self::connect).
    ///
    /// Defaults to `<host name>:<process id>`. A character of the host name that is not allowed becomes `-`, and a long host
    /// name loses its beginning. In Kubernetes the host name is the name of the pod.
    ///
    /// Everybody who may read the keys of the locks can read the label: use neither secrets nor names of persons. Locks in the
    /// dialect [`Redisson`](Dialect::Redisson) have no label.
    pub fn owner_label(mut self, label: impl Into<String>) -> Self {
        self.config.owner_label = Some(label.into());
        self
    }

    /// Sets the dialect: how locks are written on the nodes. Locks of other languages' libraries in the
    /// same dialect exclude these locks. Defaults to [`Dialect::Plain`]. A request can set [another
    /// dialect](crate::LockRequest::dialect).
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.config.dialect = Some(dialect);
        self
    }

    /// Sets the lease of locks whose request sets no [`expire`](crate::LockRequest::expire). Such a
    /// lease is renewed every third of its length. From 10 ms to 7 days. Defaults to 30 s, or to the longest lease
    /// that all nodes [grant](crate::node::Capabilities::longest_lease) if that is shorter.
    pub fn expire(mut self, expire: Duration) -> Self {
        self.config.expire = Some(expire);
        self
    }

    /// Sets how long a node may be silent. A node that owes a reply and has sent nothing for this time
    /// counts as failed, and the other nodes decide.
    ///
    /// Only the silence of the node counts. If this process is busy or was stopped, commands that it has
    /// not sent and replies that it has not read do not count against the node. A node that works
    /// through a long queue and keeps replying is not silent either. If this process is late, an
    /// acquisition therefore takes longer than the `node_timeout`, but never longer than its lease: then
    /// it fails with [`LockError::TimedOut`](crate::LockError::TimedOut).
    ///
    /// Choose several round trips, and less than the lease. A server on a busy machine, which shares its
    /// processor, can pause for tens of milliseconds. From 1 ms to 60 s. Defaults to 1 s with one node,
    /// because there is no other node to ask, and to 200 ms with several; to half of
    /// [`expire`](Self::expire) if that is shorter.
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.config.node_timeout = Some(node_timeout);
        self
    }

    /// Sets how long a connection attempt to a node may take. From 1 ms to 60 s. Defaults to 1 s.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.config.connect_timeout = Some(connect_timeout);
        self
    }

    /// Sets how many callers of this manager may wait for one key, so that a hot key cannot exhaust the
    /// service. A further caller fails with
    /// [`LockError::TooManyWaiters`](crate::LockError::TooManyWaiters). At least 1. Defaults to 1000.
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.config.max_waiters = Some(max_waiters);
        self
    }

    /// Sets how many bytes of request bodies the layers of `redlock-axum` keep in memory for this manager, all requests
    /// together. A layer reads the body of a request before it requests the lock, so that a slow client never holds one.
    ///
    /// A request whose body finds no room is answered with 503 and `Retry-After`. A body takes up room until the handler
    /// reads it, or the request ends. A layer allows no [`body_limit`] above this value. At least 1 byte. Defaults to
    /// 67,108,864 (64 MiB).
    ///
    /// [`body_limit`]: https://docs.rs/redlock-axum/latest/redlock_axum/struct.LockPolicy.html#method.body_limit
    pub fn body_buffers(mut self, bytes: usize) -> Self {
        self.config.body_buffers = Some(bytes);
        self
    }

    /// Sets how long waiters keep their place in the queue while no quorum of nodes replies. Within this
    /// grace, a dropped connection or a restart of the servers delays the waiters but causes no error.
    /// The grace counts from the first attempt without a quorum. After it, each waiter fails with
    /// [`LockError::Unavailable`](crate::LockError::Unavailable) at its next attempt.
    ///
    /// A caller is a waiter once the nodes have refused it because another holder has the lock, or once
    /// it queues behind another caller of this manager, or, if it is [fair](crate::LockRequest::fair), of another
    /// process. All other callers fail within one attempt:
    /// [`try_acquire`](crate::LockRequest::try_acquire), a request without
    /// [`wait_time`](crate::LockRequest::wait_time), and a request that begins during the outage. Such a request with a
    /// `wait_time` first waits for one attempt of the nodes to connect, for at most the
    /// [`connect_timeout`](Self::connect_timeout). All
    /// waiters of a key share the grace of an outage. The grace never extends a `wait_time`. A caller that
    /// [waits for ever](crate::LockRequest::wait_forever) needs no grace: it waits for the end of the outage. A missing
    /// right on the servers is not an outage.
    ///
    /// From 0, which disables the grace, to 60 s. Defaults to 2 s.
    pub fn outage_grace(mut self, outage_grace: Duration) -> Self {
        self.config.outage_grace = Some(outage_grace);
        self
    }

    /// Keeps a server from granting locks after a restart or a clock step, until all leases that it may
    /// have forgotten are over.
    ///
    /// A restarted server does not vote on new locks until it has run for `longest_lease`. A server
    /// whose wall clock was stepped forward does not vote on new locks for `longest_lease` after the
    /// step was noticed. The reason: a server that restarts without its data has forgotten its locks,
    /// and would help a second caller to acquire a lock that is held. A server whose clock jumped
    /// forward ends leases early, with the same effect. This is the "delayed restart" of the [Redis
    /// documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), for
    /// servers that restart automatically.
    ///
    /// From 10 ms to 7 days. Defaults to none: the servers are trusted to keep their locks (with the
    /// settings `appendonly yes` and `appendfsync always`), or operators keep a restarted server away.
    ///
    /// Meanwhile the node's vote on a new lock is [`NodeError::Restarted`](crate::NodeError::Restarted)
    /// or [`NodeError::ClockStepped`](crate::NodeError::ClockStepped), with the time after which it
    /// votes again. The other nodes decide. The node still extends and releases the locks that it has
    /// kept. A lock that a quorum of nodes has forgotten is lost. A lock that a minority has forgotten
    /// is set again on these nodes when they vote again, if the lock is renewed.
    ///
    /// # Choosing the longest lease
    ///
    /// `longest_lease` is the longest lease that any client of these servers requests, including other
    /// services. A longer lease is an error in this manager: as the default [`expire`](Self::expire), in
    /// a request, and in [`extend`](crate::LockHandle::extend).
    ///
    /// # After a start
    ///
    /// * [`connect`](Self::connect) does not wait for the end of this time. If a quorum of the servers
    ///   was started a moment ago, for instance all of them for the first time, requests fail with
    ///   [`LockError::Unavailable`](crate::LockError::Unavailable) until these servers have run for
    ///   `longest_lease`.
    /// * A server reports its uptime (`INFO server`) in whole seconds, so it may begin to grant locks up
    ///   to two seconds later than necessary.
    /// * If the user has no right to `INFO`, the uptime is unknown. The server then votes when the
    ///   connection to it has lasted for `longest_lease`, and waits again after each reconnect.
    ///
    /// # Clock steps
    ///
    /// * The manager compares the server's clock (`TIME`) with the local clock twice a second, even
    ///   while no locks are requested, and at each connect. Locks that a server grants between a step
    ///   and the next comparison count. So one step can let a second caller in if the holder has no more
    ///   nodes than a quorum, and steps of several servers must be further apart than the comparisons.
    /// * A step is noticed if it is larger than the sum of 50 ms, the mean of the two round trips, and
    ///   0.1 % of the time between the two comparisons. Smaller steps do not add up, and a clock that
    ///   runs fast by up to a tenth is not noticed.
    /// * A smaller step ends leases on that server early by its size. Leases of 5 s and more have a
    ///   margin of 50 ms, which also has to cover the clock drift. The holder of a shorter lease can
    ///   overlap with the next holder by the missing margin, at most by the size of the step. The same
    ///   holds for a lock that was set between a backward and a forward step without a comparison in
    ///   between: the two steps cancel out, and the lease ends early by the size of the second one.
    /// * A step before the first connect is not noticed, nor is a step of a server whose user has no
    ///   right to `TIME`: the manager logs a warning about such a server.
    /// * A backward step is only logged and counted: the server keeps locks for longer, which admits no
    ///   second holder. Without the `restart_guard`, a forward step is only logged and counted too, after
    ///   the next use of the server.
    /// * If this machine is suspended, or moved to another host, and its clocks stand still meanwhile,
    ///   all servers seem to be stepped forward. They grant no locks to this manager for
    ///   `longest_lease`.
    ///
    /// # Not covered
    ///
    /// The guard does not help if a server forgets locks in other ways: `FLUSHALL`, eviction, a replica
    /// that becomes the master without the URL of a Sentinel group or a cluster, or a proxy that leads one connection to several
    /// servers. It has no effect on nodes in memory.
    ///
    /// # Promotions
    ///
    /// A server of a Sentinel group that was promoted to master does not vote on new locks for
    /// `longest_lease` and the [`failover_margin`](Self::failover_margin) after its promotion, and does not
    /// vote on extensions for the margin. Its vote is [`NodeError::Promoted`](crate::NodeError::Promoted).
    /// A manager that connects later learns the time of the promotion from the sentinels. A sentinel that
    /// was restarted counts from its start, so a manager that connects after a restart of all sentinels
    /// waits too. As soon as one sentinel names another master by a later failover, the present one does not vote on new
    /// locks until a majority of the sentinels decides ([`NodeError::Disputed`](crate::NodeError::Disputed)).
    ///
    /// The same times apply to a promoted master of a Redis Cluster. No server of a cluster reports the time
    /// of a promotion. So these times begin when the manager first connects to the server as a master, and a manager
    /// that connects after a failover waits too.
    pub fn restart_guard(mut self, longest_lease: Duration) -> Self {
        self.config.restart_guard = Some(longest_lease);
        self
    }

    /// Sets how long a former master of a Sentinel group or a Redis Cluster may still grant locks after
    /// another server was promoted. Only with a [`restart_guard`](Self::restart_guard), which explains the effect: without it,
    /// and if no node supports it, this is an error of [`connect`](Self::connect).
    ///
    /// A master that is cut off from its replicas accepts writes until their last message is older than
    /// `min-replicas-max-lag`, if the servers have `min-replicas-to-write 1` or more. Otherwise it accepts
    /// writes without limit, and no margin suffices: the manager logs a warning about such a master.
    ///
    /// From 0 to 60 s. Defaults to the `min-replicas-max-lag` of the master and 2 s, because a server counts
    /// the lag in whole seconds and checks it once per second. If the user has no right to read the setting
    /// (`CONFIG GET`), it counts as 10 s, the default of the servers.
    ///
    /// A master of a Redis Cluster that is cut off from the other masters accepts writes for its
    /// `cluster-node-timeout`. There the margin defaults to that time, 15 s if it cannot be read, and 1 s.
    pub fn failover_margin(mut self, failover_margin: Duration) -> Self {
        self.config.failover_margin = Some(failover_margin);
        self
    }

    /// Sets the time between two readings of the slots of a Redis Cluster (`CLUSTER SLOTS`). From 100 ms to 60 s.
    /// Defaults to 5 s. It has no effect on other nodes.
    ///
    /// The manager also reads the slots as soon as a server answers `MOVED` or `CLUSTERDOWN`, and four times per
    /// second while a master is not connected. A shorter time only helps to notice a failover of a master that still
    /// accepts connections but does not answer.
    pub fn cluster_refresh(mut self, cluster_refresh: Duration) -> Self {
        self.config.cluster_refresh = Some(cluster_refresh);
        self
    }

    /// Sets whether the manager warns of requests that take locks in different orders. Defaults to true.
    ///
    /// A request that holds the lock A and waits for B, and another one that holds B and waits for A, wait for each other until
    /// a `wait_time` ends. The manager remembers in which order the requests of a [`scope`](crate::scope()), such as a
    /// web request, have waited for locks, by their [names](crate::LockRequest::named). If the orders close a circle, also
    /// through further locks, it logs one warning with the place of each step: a route, a function or a line of code. So the
    /// warning comes before the first deadlock. The metric `redlock_lock_order_total` counts the circles.
    ///
    /// A request that waits for a second lock of one name while it holds the first is a circle too:
    /// [`lock_all`](crate::LockManager::lock_all) takes several keys at once.
    ///
    /// Not watched are requests that do not wait, locks that are only shared by readers, locks without a name, and names after
    /// the first 200. A request with one lock costs nothing.
    pub fn lock_order(mut self, lock_order: bool) -> Self {
        self.config.lock_order = Some(lock_order);
        self
    }
}

/// The values of options whose defaults several parts of a manager need.
impl LockManagerBuilder {
    /// Returns `expire`. The default is limited to the longest lease that all nodes grant.
    pub(super) fn resolved_expire(&self) -> Duration {
        let longest = self.nodes.iter().filter_map(|node| match node {
            NodeConfig::Node(node) => Some(node.capabilities().longest_lease),
            NodeConfig::Url(url) => url.longest_lease(),
        });
        self.config.expire.unwrap_or_else(|| longest.fold(EXPIRE, Duration::min))
    }

    pub(super) fn resolved_node_timeout(&self, nodes: usize) -> Duration {
        let default = if nodes > 1 { NODE_TIMEOUT } else { SINGLE_NODE_TIMEOUT };
        self.config.node_timeout.unwrap_or(default.min(self.resolved_expire() / 2))
    }

    pub(super) fn resolved_connect_timeout(&self) -> Duration {
        self.config.connect_timeout.unwrap_or(CONNECT_TIMEOUT)
    }
}

/// Shows the names of the nodes instead of their URLs, and no credentials (secrets stay in).
impl fmt::Debug for LockManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManagerBuilder")
            .field("nodes", &self.nodes)
            .field("config", &self.config)
            .field("tls", &self.tls)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
