//! The guard of a held lock.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::handle::LockHandle;
use crate::clock::Moment;
use crate::context::Context;
use crate::error::ReleaseError;
use crate::lease::{Held, Renewal};
use crate::log_limit::LogLimit;

/// A held lock. Dropping the guard releases the lock.
///
/// Dereferences to its [`LockHandle`], which has the methods of the held lock. The holder may rely on the lock as long as
/// [`is_valid`](LockHandle::is_valid) returns true. The validity is
/// the lease on the servers minus the duration of the acquisition and a margin for clock drift. The
/// guard does not stop work that runs for longer: check [`remaining`](LockHandle::remaining) before a critical
/// step, or race the work with [`lost`](LockHandle::lost).
///
/// Dropping the guard releases the lock in the background. [`release`](Self::release) also waits for the
/// release and returns its result. Before the [runtime](crate::LockManager#runtime) of the manager ends, await
/// [`LockManager::shutdown`](crate::LockManager::shutdown): a guard that is dropped while that runtime ends, or
/// afterwards, cannot release its lock.
#[must_use = "the lock is released as soon as the guard is dropped; bind it by `let guard = ..`, because `let _ = ..` drops it at once"]
pub struct LockGuard {
    handle: LockHandle,
    /// Whether the guard has ended its holding, so that `drop` has nothing to do.
    released: bool,
}

impl LockGuard {
    /// Returns the first guard of a lock, which is valid for `remaining` at `now`, or for longer.
    pub(crate) fn new(
        context: Arc<Context>,
        held: Arc<Held>,
        renewal: Option<Renewal>,
        now: Instant,
        remaining: Duration,
    ) -> Self {
        context.keeper.add(&held, renewal, now, remaining);
        Self { handle: LockHandle { context, held }, released: false }
    }

    /// Returns one more guard of a lock that the same scope holds; `None` if its last guard has ended.
    pub(crate) fn share(context: &Arc<Context>, held: Arc<Held>) -> Option<Self> {
        let handle = LockHandle { context: Arc::clone(context), held };
        handle.held.add_guard().then_some(Self { handle, released: false })
    }

    /// Ends the guard without releasing the lock: the lock stays on the nodes until its lease runs out,
    /// so that no other caller acquires it before. For work that runs at most once per period.
    ///
    /// Ends the renewal too. If other guards of the same [scope](crate::scope()) have joined the lock, this
    /// takes effect when the last of them is dropped or released.
    pub fn keep_until_expiry(self) {
        self.handle.held.attempt().keep_until_expiry();
        drop(self);
    }

    pub(crate) fn held(&self) -> &Held {
        &self.handle.held
    }

    /// Returns a view of this lock, which can be cloned and passed around.
    pub fn handle(&self) -> LockHandle {
        self.handle.clone()
    }

    /// Releases the lock and waits until a quorum of nodes has confirmed the release, or until so many
    /// nodes have been silent for the manager's
    /// [`node_timeout`](crate::LockManagerBuilder::node_timeout) that no quorum can confirm it. The
    /// release on the remaining nodes continues in the background. Never removes the lock of another
    /// holder.
    ///
    /// # Errors
    ///
    /// * [`ReleaseError::Expired`] if the lock was no longer held: another holder may have worked at the
    ///   same time.
    /// * [`ReleaseError::Unavailable`] if no quorum of nodes confirmed the release in time.
    ///
    /// A lock that [stays until its lease runs out](crate::LockRequest::keep) returns no error: nothing
    /// is sent to the nodes.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release continues in the background, as if the guard were dropped.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let Self { handle, released } = &mut self;
        let LockHandle { context, held } = &*handle;
        let _shutdown_waits = context.ballot.home.delay_shutdown();
        // `end` disarms `drop`. From its first poll on, the ballot's release completes in the background
        // if it is dropped, and nothing is awaited between `end` and this first poll. `end` returns
        // `None` while another guard of the same scope has joined the lock.
        let Some(ended) = end(handle, released) else { return Ok(()) };
        let Some(permit) = context.queues.hand_over_or_permit(held) else { return Ok(()) };
        let latest_expiry = held.latest_expiry();
        let attempt = Arc::clone(held.attempt());
        let subscribers = context.ballot.release(attempt, ended, latest_expiry).await?;
        permit.released(subscribers);
        Ok(())
    }

    /// Releases the lock, and logs a failure within the manager's limit. No public API.
    ///
    /// A failed release is only logged, because the work is done and its result stays valid.
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    #[doc(hidden)]
    pub async fn release_or_log(self) {
        const MESSAGE: &str = "the release of a lock failed after its work";
        let log_limit = Arc::clone(self.log_limit());
        let Err(error) = self.release().await else { return };
        let node = LogLimit::failed_node(error.votes());
        let error = error.diagnostics();
        if let Some(suppressed) = log_limit.admit("not released", node) {
            tracing::warn!(suppressed, "{MESSAGE}: {error}");
        } else {
            tracing::debug!("{MESSAGE}: {error}");
        }
    }
}

/// Ends the holding of a guard in this process. Returns the time of the end if the lock has to be released on the
/// nodes; `None` while another guard holds it.
fn end(handle: &LockHandle, released: &mut bool) -> Option<Moment> {
    let LockHandle { context, held } = handle;
    *released = true;
    if !held.remove_guard() {
        return None;
    }
    let ended = held.end_by_holder();
    context.keeper.remove(held);
    Some(ended)
}

impl Deref for LockGuard {
    type Target = LockHandle;

    fn deref(&self) -> &LockHandle {
        &self.handle
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let Self { handle, released } = self;
        if *released || end(handle, released).is_none() {
            return;
        }
        let LockHandle { context, held } = &*handle;
        context.queues.hand_over_or_release(held);
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("keys", &self.keys())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
