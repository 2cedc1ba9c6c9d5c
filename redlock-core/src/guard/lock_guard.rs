//! The guard of a held lock.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::handle::LockHandle;
use crate::clock::Moment;
use crate::context::Context;
use crate::error::{HoldError, LockError, ReleaseError};
use crate::lease::{HoldState, Holding};
use crate::lock::Mode;
use crate::log_limit::LogLimit;
use crate::log_limited;
use crate::options::Renewal;
use crate::waiting::Queues;

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
#[derive(Debug)]
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
        held: Arc<Holding>,
        renewal: Option<Renewal>,
        now: Instant,
        remaining: Duration,
    ) -> Self {
        held.begin();
        context.keeper.add(&held, renewal, now, remaining);
        Self { handle: LockHandle { context, held }, released: false }
    }

    /// Returns one more guard of a lock that the same scope holds; `None` if its last guard has ended.
    pub(crate) fn join(context: &Arc<Context>, held: Arc<Holding>) -> Option<Self> {
        let handle = LockHandle { context: Arc::clone(context), held };
        handle.held.add_guard().then_some(Self { handle, released: false })
    }

    /// Ends the guard without releasing the lock: the lock stays on the nodes until its lease runs out,
    /// so that no other caller acquires it before. For work that runs at most once per period. A lock in ZooKeeper ends
    /// earlier, if its process ends before.
    ///
    /// Ends the renewal too. If other guards of the same [scope](crate::scope()), or other
    /// [readers](crate::LockRequest::shared), have joined the lock, this takes effect when the last of them is dropped or
    /// released.
    pub fn keep_until_expiry(self) {
        self.handle.held.attempt().keep_until_expiry();
        drop(self);
    }

    pub(crate) fn held(&self) -> &Arc<Holding> {
        &self.handle.held
    }

    /// Returns a view of this lock, which can be cloned and passed around.
    pub fn handle(&self) -> LockHandle {
        self.handle.clone()
    }

    /// Turns an exclusive lock into a [shared](crate::LockRequest::shared) one, in one step: no other exclusive holder
    /// gets the lock in between. Wakes the callers that wait for a shared lock. The lease and its renewal go on. Does
    /// nothing if the lock was acquired as a shared one.
    ///
    /// # Errors
    ///
    /// * [`HoldError::Lost`] if the lock is lost, or its lease ended before a quorum of nodes confirmed the change.
    /// * [`HoldError::Unavailable`] if no quorum of nodes confirmed the change in time. The lock counts as shared from
    ///   now on. On the nodes that have not executed the change, it stays exclusive until it is released, or until
    ///   another call of this method reaches them.
    /// * [`HoldError::InvalidOption`] if the lock has several keys, if its [dialect](crate::Dialect) or a node has no
    ///   shared locks, or if another guard of the same [scope](crate::scope()) has joined the exclusive lock, and relies
    ///   on it. The lock stays exclusive.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is held as before, or as after [`HoldError::Unavailable`].
    /// [`is_shared`](LockHandle::is_shared) tells which.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::LockManager;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.lock("catalogue").try_acquire().await?;
    /// // ... write ...
    /// guard.downgrade().await?;
    /// let another = locks.lock("catalogue").shared(true).try_acquire().await?;
    /// # drop((guard, another)); Ok(()) }
    /// ```
    pub async fn downgrade(&self) -> Result<(), HoldError> {
        let LockHandle { context, held } = &**self;
        let attempt = held.attempt();
        if attempt.spec().mode().is_shared() && !attempt.is_downgraded() {
            return Ok(());
        }
        context.limits.check_lock(&attempt.spec().with_mode(Mode::SHARED), false, false)?;
        let remaining = held.remaining();
        if remaining.is_zero() {
            return Err(self.loss().into());
        }
        let _wake_readers = WakeReaders(&context.queues, held);
        let downgrade = held.begin_downgrade()?;
        self.checked(context.ballot.downgrade(attempt, &downgrade, remaining).await)
    }

    /// Releases the lock and waits until a quorum of nodes has confirmed the release, or until so many
    /// nodes have been silent for the manager's
    /// [`node_timeout`](crate::LockManagerBuilder::node_timeout) that no quorum can confirm it. The
    /// release on the remaining nodes continues in the background. Never removes the lock of another
    /// holder.
    ///
    /// If other guards share the lock, because [readers](crate::LockRequest::shared) or requests of the same
    /// [scope](crate::scope()) have joined it, only this guard ends, at once and without a question to the nodes. The last guard
    /// releases the lock.
    ///
    /// # Errors
    ///
    /// * [`ReleaseError::Lost`] if the lock was no longer held: another holder may have worked at the
    ///   same time. Also if the guard is not the last, and was lost or was not valid any more.
    /// * [`ReleaseError::Unavailable`] if no quorum of nodes confirmed the release in time.
    ///
    /// A lock that [stays until its lease runs out](crate::LockRequest::keep) returns no error: nothing
    /// is sent to the nodes.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release continues in the background, as if the guard were dropped.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let _shutdown_waits = self.context.home.delay_shutdown();
        // `end` disarms `drop`. From its first poll on, the ballot's release completes in the background
        // if it is dropped, and nothing is awaited between `end` and this first poll. `end` returns
        // `None` while another guard of the same scope has joined the lock.
        let Some(ended) = self.end() else { return Ok(()) };
        let LockHandle { context, held } = &self.handle;
        let Some(permit) = context.queues.hand_over_or_permit(held) else {
            // The next holder has the lock, or other readers of this process still share it.
            return match held.state() {
                HoldState::Lost(_) => Err(ReleaseError::Lost(self.loss())),
                _ => Ok(()),
            };
        };
        let latest_expiry = held.latest_expiry();
        let attempt = Arc::clone(held.attempt());
        let result = context.ballot.release(attempt, ended, latest_expiry).await;
        permit.released(result.map_err(|error| match error {
            ReleaseError::Lost(lost) => {
                held.report_gone_at_release(&lost.votes);
                ReleaseError::Lost(match held.state() {
                    HoldState::Lost(cause) => lost.with_cause(cause),
                    _ => lost,
                })
            }
            error => error,
        })?);
        Ok(())
    }

    /// Returns the error of work that must not begin, because its lock is lost. No public API.
    #[doc(hidden)]
    pub fn check_before_work(&self) -> Result<(), LockError> {
        if self.is_valid() { Ok(()) } else { Err(LockError::Lost(self.loss())) }
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
        let log_limit = Arc::clone(self.log_limit());
        let Err(error) = self.release().await else { return };
        let node = error.votes().map_or("", LogLimit::failed_node);
        log_limited!(
            log_limit, "not released", node, warn, lock = %error.key(),
            "the release of a lock failed after its work: {}", error.diagnostics()
        );
    }

    /// Ends the holding of the guard in this process. Returns the time of the end if the lock has to be released on the
    /// nodes; `None` while another guard holds it.
    fn end(&mut self) -> Option<Moment> {
        self.released = true;
        let LockHandle { context, held } = &self.handle;
        if !held.remove_guard() {
            return None;
        }
        let ended = held.end_by_holder(|| context.keeper.record_late(held));
        context.keeper.remove(held);
        Some(ended)
    }
}

/// Wakes the readers of this process when a downgrade ends, or its future is dropped.
struct WakeReaders<'a>(&'a Queues, &'a Arc<Holding>);

impl Drop for WakeReaders<'_> {
    fn drop(&mut self) {
        self.0.wake_readers(self.1);
    }
}

impl Deref for LockGuard {
    type Target = LockHandle;

    fn deref(&self) -> &LockHandle {
        &self.handle
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.released && self.end().is_some() {
            let LockHandle { context, held } = &self.handle;
            context.queues.hand_over_or_release(held);
        }
    }
}
