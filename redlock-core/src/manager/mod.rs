//! The lock manager, which wires the parts of the crate together.

mod builder;
mod check;
mod config;
mod connect;
mod drained;
#[cfg(test)]
mod flood_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod node_tests;
mod nodes;
#[cfg(test)]
mod server_changes_tests;
#[cfg(feature = "tls")]
mod tls;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::buffer_space::BufferSpace;
use crate::clock::SystemClock;
use crate::context::Context;
use crate::error::LossCause;
use crate::key::LockKey;
use crate::lease::HoldState;
use crate::lock::{Keys, LockName, OwnerLabel};
use crate::log_limit::LogLimit;
use crate::request::LockRequest;
use crate::request::lead::LeadRequest;
use crate::store::memory::MemoryNode;
#[cfg(any(test, feature = "unstable-simulation"))]
use crate::waiting::{FairQueues, Queues};

pub use builder::LockManagerBuilder;
#[cfg(feature = "test-util")]
pub(crate) use check::MAX_NODES;
pub use config::{LockManagerConfig, NodeUrl};
pub use drained::Drained;

/// A factory of locks on one node, or on a majority of several nodes.
///
/// A service needs one manager. Cloning is cheap, and the clones share everything.
///
/// # Runtime
///
/// The connections, renewals and releases of a manager run in one Tokio runtime: the first that uses the manager. Other
/// runtimes may use the manager too, as long as a thread drives the first one.
///
/// * When it has ended, every request fails with [`LockError::RuntimeEnded`](crate::LockError::RuntimeEnded), and the
///   locks that are still held are lost. So each runtime needs a manager of its own, and each `#[tokio::test]`, which
///   has a runtime of its own.
/// * While it is not driven (a `current_thread` runtime outside of `block_on`, or a task blocks it), requests in other runtimes fail with
///   [`LockError::Unavailable`](crate::LockError::Unavailable) and [`NodeError::RuntimeIdle`](crate::NodeError::RuntimeIdle),
///   leases are not renewed, and guards end with their leases.
///
/// Before it ends, await [`shutdown`](Self::shutdown): otherwise locks that are still held stay on the servers until their
/// leases run out.
///
/// # Examples
///
/// ```no_run
/// use redlock_core::LockManager;
///
/// # #[cfg(feature = "redis")]
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let locks =
///     LockManager::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?;
/// let guard = locks.lock("order:42").try_acquire().await?;
/// # guard.release().await?; Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockManager {
    context: Arc<Context>,
}

impl LockManager {
    /// Returns a builder with the default options.
    pub fn builder() -> LockManagerBuilder {
        LockManagerConfig::new().builder()
    }

    /// Creates a manager whose locks exist only in the memory of this process: for examples, tests, and
    /// services that run as one copy. See [`MemoryNode`].
    pub fn in_memory() -> Self {
        Self::builder().build(vec![Arc::new(MemoryNode::new())], Arc::new(SystemClock))
    }

    /// Returns a request for the lock of a key: a text, or a [`LockKey`](crate::LockKey).
    ///
    /// An invalid key is reported by the acquisition, as
    /// [`LockError::InvalidKey`](crate::LockError::InvalidKey). See
    /// [`LockKey::new`](crate::LockKey::new).
    #[track_caller]
    pub fn lock(&self, key: impl AsRef<str>) -> LockRequest {
        LockRequest::new(&self.context, LockKey::new(key).map(Keys::from))
    }

    /// Returns a request for one lock of several keys: the holder gets all of them or none. For work on
    /// several resources, such as the items of a shopping cart.
    ///
    /// The keys are sorted, and duplicates are removed, so their order does not matter. From 1 to 64 different
    /// keys are allowed. Any lock that has one of the keys, such as [`lock`](Self::lock) of that key, excludes
    /// this lock.
    ///
    /// Each node sets, extends and releases all keys in one step. While the caller waits, no key is held: it
    /// asks for all keys again when the key is free for which it was refused. So callers of overlapping keys do
    /// not block each other for ever, but a lock of many keys may wait for long while others lock these keys one
    /// after another. The caller waits in the queue of the held key, in front of the callers that arrived later than
    /// it. The lock is never handed over inside the process. If one key is lost, the whole lock is lost.
    ///
    /// The errors of the acquisition are those of a lock of one key. Their
    /// [`key`](crate::LockError::key) is the first key that another holder has, or else the first key. They
    /// are also:
    ///
    /// * [`LockError::InvalidKey`](crate::LockError::InvalidKey) if the list is empty, has more than 64
    ///   different keys, or contains an invalid key;
    /// * [`LockError::InvalidOption`](crate::LockError::InvalidOption) with
    ///   [`Dialect::Redisson`](crate::Dialect::Redisson), with [`shared`](LockRequest::shared),
    ///   [`permits`](LockRequest::permits) or [`fair`](LockRequest::fair), and if a [node](crate::node) cannot hold
    ///   several keys. That also holds for a list of one key, so that code which was tested with one key does not fail
    ///   with the first list of two.
    ///
    /// In Redis Cluster the keys must be in one slot: give them a common hash tag, such as `{shop}:sku:7`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use redlock_core::LockManager;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let skus = ["sku:7", "sku:3", "sku:7"];
    /// let guard = locks.lock_all(skus).wait_time(Duration::from_secs(1)).acquire().await?;
    /// assert_eq!(guard.keys().len(), 2);
    /// assert!(locks.lock("sku:3").try_acquire().await.unwrap_err().is_contended());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn lock_all(&self, keys: impl IntoIterator<Item = impl AsRef<str>>) -> LockRequest {
        LockRequest::new(&self.context, Keys::collect(keys.into_iter().map(LockKey::new)))
    }

    /// Returns a request to lead: to run work in one process at a time, and in another one when that process stops or dies.
    /// See [`LeadRequest::run`].
    ///
    /// `name` is the key of the leader's lock: a text, or a [`LockKey`](crate::LockKey).
    #[track_caller]
    pub fn lead(&self, name: impl AsRef<str>) -> LeadRequest {
        LeadRequest::new(self.lock(name))
    }

    /// Returns whether a quorum of nodes is available, as far as this process knows, for example for a
    /// readiness probe. Sends nothing to the nodes. An idle manager sends nothing either, so it notices a server that keeps its
    /// connection and does not answer only at its next use.
    ///
    /// Available nodes extend and release locks. For up to the
    /// [`restart_guard`](LockManagerBuilder::restart_guard) after a restart, they may grant none: see
    /// [`is_granting`](Self::is_granting).
    pub fn is_available(&self) -> bool {
        !self.context.home.has_ended() && self.context.ballot.has_quorum()
    }

    /// Returns whether the manager can acquire locks, as far as this process knows: whether a quorum of nodes is available
    /// and grants locks. Sends nothing to the nodes.
    ///
    /// False while every acquisition fails: [`is_available`](Self::is_available) is false, the
    /// [`restart_guard`](LockManagerBuilder::restart_guard) keeps too many nodes from granting locks, or the manager was
    /// [drained](Self::drain) or shut down. A Redis Cluster counts as long as one of its masters grants locks.
    ///
    /// A service that cannot work without new locks may report it as not ready then. Its running requests
    /// keep their locks.
    pub fn is_granting(&self) -> bool {
        !self.is_draining() && self.context.ballot.is_granting()
    }

    /// Waits until a quorum of nodes is available, as far as this process knows. Returns at once if it
    /// is available now. Never returns after the end of the [runtime](Self#runtime) of the manager.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait_available(&self) {
        self.context.enter();
        self.context.ballot.quorum_recovered().await;
        if self.context.home.has_ended() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns the names of the nodes in the order of the configuration. The name of a Redis server is
    /// its host and port.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.context.ballot.nodes.iter().map(|node| &**node.name())
    }

    /// Returns the [label](LockManagerBuilder::owner_label) that the nodes store with the locks of this manager; `None` if it is
    /// `off`.
    pub fn owner_label(&self) -> Option<&OwnerLabel> {
        self.context.owner.label()
    }

    /// Returns the state that the requests of this manager share. No public API.
    #[doc(hidden)]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the rate limit of this manager's log events. No public API.
    #[doc(hidden)]
    pub fn log_limit(&self) -> &Arc<LogLimit> {
        &self.context.log_limit
    }

    /// Returns whether the manager was drained or shut down. No public API.
    #[doc(hidden)]
    pub fn is_draining(&self) -> bool {
        let home = &self.context.home;
        home.check_open().is_err() || home.drain.has_begun()
    }

    /// Returns the memory for the request bodies that wait for locks of this manager. No public API.
    #[doc(hidden)]
    pub fn body_buffers(&self) -> &Arc<BufferSpace> {
        &self.context.body_buffers
    }

    /// Counts answers that were sent again, for front ends. No public API.
    #[doc(hidden)]
    pub fn count_replays(&self, name: &LockName, count: u64) {
        self.context.telemetry.named(name.clone()).metrics.replayed(count);
    }

    /// Begins to drain this manager and all its clones: only callers that hold a lock get further locks, and holders finish
    /// their work. Call it at SIGTERM, and [`shutdown`](Self::shutdown) after the last handler has ended.
    ///
    /// The drain begins with this call, also if the future is dropped, and does not end. From then on
    ///
    /// * new and waiting requests fail with [`LockError::Draining`](crate::LockError::Draining), which is answered with 503
    ///   and `Retry-After`. A request that the nodes have not answered yet may still be granted;
    /// * held locks stay valid and are renewed, until their guards are dropped or released. Detached work goes on;
    /// * a caller that holds another lock of this manager is still served, and also waits, so that its work can end. The
    ///   holder is known by its [`scope`](crate::scope()), such as a web request behind a layer. Without a scope it is known
    ///   by the Tokio task that has acquired the lock; the code outside of spawned tasks, such as that of `block_on`, counts
    ///   as one task;
    /// * released locks are not handed over in this process: waiters of other processes are notified, and get them;
    /// * [leaders](Self::lead) resign;
    /// * [`is_granting`](Self::is_granting) returns false.
    ///
    /// The returned future resolves when this manager holds no lock any more. Await it where nothing else waits for the
    /// holders, such as for tasks that lock by hand, and limit its time: it waits for every guard. A web service need not
    /// await it, because its server waits for the handlers.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::{LockError, LockManager};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.lock("order:42").acquire().await?;
    /// let worker = tokio::spawn(async move {
    ///     // ... work ...
    ///     guard.release().await
    /// });
    ///
    /// let drained = locks.drain();
    /// let refused = tokio::spawn(locks.lock("order:43").acquire()).await?;
    /// assert!(matches!(refused, Err(LockError::Draining)));
    /// drained.await;
    /// worker.await??;
    /// locks.shutdown().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Dropping the future only stops the waiting.
    pub fn drain(&self) -> Drained {
        let Context { home, queues, .. } = &*self.context;
        if home.drain.begin() {
            let held = queues.holders(|_| true);
            tracing::info!(
                held,
                "the lock manager is draining: holders finish their work, and nobody else gets a lock"
            );
            queues.wake_all();
        }
        Drained::new(Arc::clone(&self.context))
    }

    /// Shuts down this manager and all its clones.
    ///
    /// From then on every acquisition fails with [`LockError::ShutDown`](crate::LockError::ShutDown).
    ///
    /// Waits until all [detached](crate::LockRequest::run_detached) work has ended, without a time limit. After a
    /// [drain](Self::drain) it waits until [leaders](Self::lead) have resigned, at most for the `connect_timeout`. Then locks
    /// that are still held are lost for their holders. They are released, except locks that [stay
    /// on the nodes](crate::LockGuard::keep_until_expiry) until their leases run out. Waits for the
    /// releases in progress, at most for the [`connect_timeout`](LockManagerBuilder::connect_timeout).
    ///
    /// Call it last, when the server has stopped and no handler runs. [`drain`](Self::drain) lets that happen soon. The lock
    /// of a guard that is dropped while the [runtime](Self#runtime) of the manager ends stays on the servers until its lease
    /// runs out.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Dropping the future only stops the waiting: the manager stays shut down. If detached work runs then,
    /// it goes on, and the locks are held until their guards are dropped or their leases run out.
    pub async fn shutdown(&self) {
        let Context { home, keeper, ballot, queues, connect_timeout, .. } = &*self.context;
        home.close();
        self.context.enter();
        // A holder is in the queue of each of its keys.
        let mut seen = HashSet::new();
        let holders = queues.close();
        home.finish_detached().await;
        home.finish_terms(*connect_timeout).await;
        let holders = holders.into_iter();
        let holders =
            holders.filter(|held| matches!(held.state(), HoldState::Held | HoldState::Lost(_)));
        let holders: Vec<_> =
            holders.filter(|held| seen.insert(Arc::as_ptr(held).addr())).collect();
        for held in &holders {
            held.lose("shutdown", LossCause::ManagerEnded, "the manager was shut down");
            keeper.remove(held);
        }
        // Afterwards, because several readers may rely on one lock.
        let mut released = HashSet::new();
        for held in &holders {
            if released.insert(Arc::as_ptr(held.attempt()).addr()) {
                ballot.release_in_background(held.attempt(), held.latest_expiry(), |_| {});
            }
        }
        let abandoned = home.finish_tasks(*connect_timeout).await;
        if abandoned > 0 {
            tracing::warn!(
                tasks = abandoned, nodes = %ballot.states(),
                "abandoned work that nodes did not confirm; locks end with their leases, tickets of fair queues within seconds"
            );
        }
    }
}

#[cfg(any(test, feature = "unstable-simulation"))]
impl LockManager {
    pub(crate) fn queues(&self) -> &Arc<Queues> {
        &self.context.queues
    }

    pub(crate) fn fair_queues(&self) -> &Arc<FairQueues> {
        &self.context.fair
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("nodes", &self.nodes().collect::<Vec<_>>())
            .field("prefix", &self.context.prefix)
            .finish_non_exhaustive()
    }
}
