//! The one place where the parts are wired together.

mod builder;
mod connect;
#[cfg(test)]
mod flood_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod node_tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::ballot::Ballot;
use crate::error::{ConnectError, InvalidOption, LockError};
use crate::key::{KeyError, LockKey};
use crate::lease::{Background, Keeper};
use crate::lock::Dialect;
use crate::log_limit::LogLimit;
use crate::node::LeaseRange;
use crate::queue::Queues;
use crate::request::{LockRequest, check_expire};
use crate::runtimes::Runtimes;

pub use builder::LockManagerBuilder;

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
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let locks =
///     LockManager::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?;
/// let guard = locks.lock("order:42").try_acquire().await?;
/// # guard.release().await?; Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockManager {
    shared: Arc<Shared>,
}

/// What a manager, its requests and its guards share.
pub(crate) struct Shared {
    pub(crate) ballot: Ballot,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) runtimes: Arc<Runtimes>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) background: Arc<Background>,
    pub(crate) prefix: Box<str>,
    pub(crate) dialect: Dialect,
    pub(crate) expire: Duration,
    /// How often like events are logged.
    pub(crate) log_limit: Arc<LogLimit>,
    leases: LeaseRange,
    restart_guard: Option<Duration>,
    connect_timeout: Duration,
    closed: AtomicBool,
    /// After how many moves to another runtime the nodes were waited for.
    settled_moves: AtomicU64,
}

impl LockManager {
    /// Starts the configuration of a manager.
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::new()
    }

    /// Connects to the given nodes, with the defaults of [`LockManagerBuilder`]. One URL makes a
    /// lock on one server, several make a Redlock on their majority.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn connect<I>(urls: I) -> Result<Self, ConnectError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        Self::builder().urls(urls).connect().await
    }

    /// Makes a manager whose locks live in the memory of this process: for examples, tests, and
    /// services that run as one copy. See [`MemoryNode`](crate::MemoryNode).
    pub fn in_memory() -> Self {
        LockManagerBuilder::in_memory()
    }

    /// Begins the acquisition of a lock.
    ///
    /// A key that cannot be used is reported by the acquisition, as
    /// [`LockError::InvalidKey`]; see [`LockKey::new`].
    pub fn lock(&self, key: impl AsRef<str>) -> LockRequest {
        self.lock_key(LockKey::new(key))
    }

    /// Begins the acquisition of a lock whose key was made before, or could not be made: the error
    /// is reported by the acquisition.
    pub fn lock_key(&self, key: Result<LockKey, KeyError>) -> LockRequest {
        LockRequest::new(Arc::clone(&self.shared), key)
    }

    /// Whether a quorum of nodes can be asked now, as far as is known: for a readiness probe. Asks no node.
    pub fn is_available(&self) -> bool {
        self.shared.ballot.has_quorum()
    }

    /// Waits until a quorum of nodes can be asked, as far as is known: at once if that is so now.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait_available(&self) {
        self.shared.runtimes.check_in();
        self.shared.ballot.quorum_recovered().await;
    }

    /// The names of the nodes, in the order of the configuration: host and port.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.shared.ballot.nodes.iter().map(|node| &**node.name())
    }

    /// How often like events of this manager's locks are logged. No public API.
    #[doc(hidden)]
    pub fn log_limit(&self) -> &Arc<LogLimit> {
        &self.shared.log_limit
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
        let Shared { keeper, ballot, queues, background, closed, connect_timeout, .. } =
            &*self.shared;
        closed.store(true, Ordering::SeqCst);
        self.shared.runtimes.check_in();
        for held in keeper.all().into_iter().chain(queues.close()) {
            held.lose("its manager was shut down");
            keeper.remove(&held);
            ballot.release_in_background(Arc::clone(held.attempt()), held.runs_out());
        }
        background.finish(*connect_timeout).await;
    }
}

#[cfg(test)]
impl LockManager {
    /// How often the background work has moved to another runtime.
    pub(crate) fn moves(&self) -> u64 {
        self.shared.runtimes.moves()
    }
}

#[cfg(any(test, feature = "unstable-simulation"))]
impl LockManager {
    pub(crate) fn queues(&self) -> &Arc<Queues> {
        &self.shared.queues
    }
}

impl Shared {
    /// Checks the lease of a lock.
    pub(crate) fn check_expire(&self, expire: Duration) -> Result<(), InvalidOption> {
        check_expire("expire", expire)?;
        self.leases.check(expire)?;
        check_guarded(expire, self.restart_guard)
    }

    /// Checks in with the runtime of this thread. If the background work has moved to another runtime,
    /// waits until a quorum of nodes is connected there, at most for the connect timeout. Returns how
    /// often the work has moved.
    ///
    /// Dropping the future changes nothing.
    pub(crate) async fn settle(&self) -> u64 {
        self.runtimes.check_in();
        let moves = self.runtimes.moves();
        if self.settled_moves.load(Ordering::Acquire) != moves {
            // From then on the nodes are down until they are connected anew.
            self.runtimes.finish_move();
            // That is rare, and would be part of every acquisition's future.
            let recovered = Box::pin(self.ballot.quorum_recovered());
            // Without a quorum the next ballot says so.
            let _ = tokio::time::timeout(self.connect_timeout, recovered).await;
            self.settled_moves.fetch_max(moves, Ordering::Release);
        }
        moves
    }

    /// Refuses fenced locks where a node cannot number holders, or where the prefix leaves no name for the
    /// fencing counter in the slot of its lock.
    pub(crate) fn check_fenced(&self) -> Result<(), InvalidOption> {
        if let Some(node) = self.ballot.nodes.iter().find(|node| !node.capabilities().fencing) {
            let allowed =
                format!("left out, because the node {} cannot number holders", node.name());
            return Err(InvalidOption::new("fenced", "true", allowed));
        }
        if self.prefix.contains('{') && !has_hash_tag(&self.prefix) {
            let allowed = "without { where locks are fenced, or with a hash tag, such as {locks}:";
            return Err(InvalidOption::new("prefix", format!("{:?}", self.prefix), allowed));
        }
        Ok(())
    }

    /// Refuses what comes after the shutdown.
    pub(crate) fn check_open(&self) -> Result<(), LockError> {
        if self.closed.load(Ordering::SeqCst) { Err(LockError::ShutDown) } else { Ok(()) }
    }
}

/// Whether all keys with this prefix lie in one slot of a Redis Cluster: it contains a first `{`, a
/// text that is not empty, and a `}`.
fn has_hash_tag(prefix: &str) -> bool {
    let tag = prefix.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.is_some_and(|(tag, _)| !tag.is_empty())
}

/// Refuses a lease that a server which has forgotten it does not stay away for.
fn check_guarded(expire: Duration, guard: Option<Duration>) -> Result<(), InvalidOption> {
    match guard {
        Some(longest) if expire > longest => {
            let allowed = format!("at most {longest:?}, the longest lease of the restart_guard");
            Err(InvalidOption::new("expire", format!("{expire:?}"), allowed))
        }
        _ => Ok(()),
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("nodes", &self.nodes().collect::<Vec<_>>())
            .field("prefix", &self.shared.prefix)
            .finish_non_exhaustive()
    }
}
