//! The one place where the parts are wired together.

mod builder;
mod check;
mod connect;
#[cfg(test)]
mod flood_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod node_tests;
#[cfg(feature = "redis")]
mod urls;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::context::Context;
use crate::key::IntoLockKey;
use crate::log_limit::LogLimit;
#[cfg(any(test, feature = "unstable-simulation"))]
use crate::queue::Queues;
use crate::request::LockRequest;

pub use builder::LockManagerBuilder;
#[cfg(feature = "test-util")]
pub(crate) use check::MAX_NODES;

/// Hands out locks on one node, or on a majority of several.
///
/// Make one for a service, and clone it: clones share everything.
///
/// # Runtimes
///
/// Several Tokio runtimes may use one manager, side by side or one after another (a `static` manager
/// under several `#[tokio::test]`s). Its connections, renewals and releases run in the first of them.
/// When that runtime ends, or is not driven for 250 ms (a `current_thread` runtime outside of
/// `block_on`), they move to another runtime that uses the manager. Acquisitions that are under way
/// meanwhile wait for the new connections, at most for the
/// [`connect_timeout`](LockManagerBuilder::connect_timeout).
///
/// Background work goes on for as long as some runtime that uses the manager is driven. Before the last
/// one ends, await [`shutdown`](Self::shutdown): a release that was not sent by then, and a lease that is
/// not renewed any more, leave the lock on the servers until the lease runs out.
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
    /// Starts the configuration of a manager.
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::new()
    }

    /// Makes a manager whose locks live in the memory of this process: for examples, tests, and
    /// services that run as one copy. See [`MemoryNode`](crate::MemoryNode).
    pub fn in_memory() -> Self {
        LockManagerBuilder::in_memory()
    }

    /// Begins the acquisition of a lock.
    ///
    /// A key that cannot be used is reported by the acquisition, as
    /// [`LockError::InvalidKey`](crate::LockError::InvalidKey); see [`LockKey::new`](crate::LockKey::new).
    pub fn lock(&self, key: impl IntoLockKey) -> LockRequest {
        LockRequest::new(Arc::clone(&self.context), key.into_lock_key())
    }

    /// Whether a quorum of nodes can be asked now, as far as is known: for a readiness probe. Asks no node.
    pub fn is_available(&self) -> bool {
        self.context.ballot.has_quorum()
    }

    /// Waits until a quorum of nodes can be asked, as far as is known: at once if that is so now.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait_available(&self) {
        self.context.runtimes.check_in();
        self.context.ballot.quorum_recovered().await;
    }

    /// The names of the nodes, in the order of the configuration: host and port.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.context.ballot.nodes.iter().map(|node| &**node.name())
    }

    /// How often like events of this manager's locks are logged. No public API.
    #[doc(hidden)]
    pub fn log_limit(&self) -> &Arc<LogLimit> {
        &self.context.log_limit
    }

    /// Ends the work of this manager and of all its clones: no lock is acquired any more, what is
    /// still held is released (and lost for its holders), but for what is
    /// [to be kept](crate::LockGuard::keep_until_expiry), and releases under way are waited for, at
    /// most for the connect timeout.
    ///
    /// Call it last, when the server has stopped and no handler runs: a lock that is dropped while
    /// the last [runtime](Self#runtimes) of the manager ends stays on the servers until its lease runs
    /// out.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping it stops the waiting only.
    pub async fn shutdown(&self) {
        let Context { keeper, ballot, queues, cleanup_tasks, closed, connect_timeout, .. } =
            &*self.context;
        closed.store(true, Ordering::SeqCst);
        self.context.runtimes.check_in();
        for held in keeper.all().into_iter().chain(queues.close()) {
            held.lose("its manager was shut down");
            keeper.remove(&held);
            ballot.release_in_background(Arc::clone(held.attempt()), held.runs_out());
        }
        cleanup_tasks.finish(*connect_timeout).await;
    }
}

#[cfg(test)]
impl LockManager {
    /// How often the background work has moved to another runtime.
    pub(crate) fn moves(&self) -> u64 {
        self.context.runtimes.moves()
    }
}

#[cfg(any(test, feature = "unstable-simulation"))]
impl LockManager {
    pub(crate) fn queues(&self) -> &Arc<Queues> {
        &self.context.queues
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
