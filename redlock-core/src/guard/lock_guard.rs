//! A lock that is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::handle::{LockHandle, LockState};
use super::lost::Lost;
use crate::ballot::Release;
use crate::context::Context;
use crate::error::{ExtendError, ReleaseError};
use crate::fencing_token::FencingToken;
use crate::key::LockKey;
use crate::lease::{Held, Renewal};

/// A lock that is held.
///
/// The holder may believe in it as long as [`is_valid`](Self::is_valid) says so: the lease on the
/// servers minus the time that the acquisition took and a margin for clock drift. The guard does
/// not stop work that goes on for longer; look at [`remaining`](Self::remaining) before a step that
/// matters, or race the work with [`lost`](Self::lost).
///
/// Dropping the guard releases the lock in the background; [`release`](Self::release) also waits
/// for it and says how it went. A guard may be dropped in a runtime that ends right after, as long as
/// another [runtime](crate::LockManager#runtimes) uses the manager. Before the last one ends, await
/// [`LockManager::shutdown`](crate::LockManager::shutdown): a guard that is dropped while it ends cannot
/// release.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard {
    handle: LockHandle,
    /// Whether `release` has taken over from `drop`.
    released: bool,
}

impl LockGuard {
    pub(crate) fn new(context: Arc<Context>, held: Arc<Held>, renewal: Option<Renewal>) -> Self {
        context.keeper.add(&held, renewal);
        Self { handle: LockHandle { context, held }, released: false }
    }

    /// One more guard of a lock that the same scope holds.
    pub(crate) fn share(context: &Arc<Context>, held: Arc<Held>) -> Option<Self> {
        let handle = LockHandle { context: Arc::clone(context), held };
        handle.held.share().then_some(Self { handle, released: false })
    }

    /// What is locked, without the manager's prefix.
    pub fn key(&self) -> &LockKey {
        self.handle.key()
    }

    /// How long the holder may still believe in the lock; zero once it may not.
    ///
    /// Counted from before the first command was sent and compared with the clock at each call, on
    /// the earlier of the monotonic clock and the clock that goes on while the machine sleeps.
    pub fn remaining(&self) -> Duration {
        self.handle.remaining()
    }

    /// Whether the lock is still held, as far as can be known without asking the nodes.
    pub fn is_valid(&self) -> bool {
        self.handle.is_valid()
    }

    /// How the lock stands, see [`LockState`].
    pub fn state(&self) -> LockState {
        self.handle.state()
    }

    /// Resolves when the lock is lost: its lease ran out, could not be renewed in time, or a quorum
    /// of nodes does not have it any more. Never resolves if the lock is released before.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe; any number of these futures may wait, and each call sees a loss that has
    /// happened before it.
    pub fn lost(&self) -> Lost {
        self.handle.lost()
    }

    /// Makes the lease last at least `expire` from now. Never shortens it.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`] if the lock is lost, [`ExtendError::Unavailable`] if no quorum of nodes
    /// confirmed it in time (the lock is then held for what [`remaining`](Self::remaining) says),
    /// [`ExtendError::InvalidOption`] for a lease out of range.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease as it was for this guard; on the servers it may last
    /// longer.
    pub async fn extend(&self, expire: Duration) -> Result<(), ExtendError> {
        self.handle.extend(expire).await
    }

    /// Ends the holding without releasing: the lock stays on the nodes until its lease runs out, and
    /// nobody acquires it before. For work that is to be done once per period, and where a release
    /// would come too early. Renewal ends. Where other guards of the same [scope](crate::scope())
    /// share the lock, all that begins when the last of them goes.
    pub fn keep_until_expiry(self) {
        self.handle.held.attempt().stay_until_expiry();
        drop(self);
    }

    pub(crate) fn held(&self) -> &Held {
        &self.handle.held
    }

    /// The holder's number, if it asked for one.
    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.handle.held.token()
    }

    /// A view of this lock to hand around.
    pub fn handle(&self) -> LockHandle {
        self.handle.clone()
    }

    /// Releases the lock and waits until a quorum of nodes has confirmed it, or so many nodes are silent
    /// for the manager's [`node_timeout`](crate::LockManagerBuilder::node_timeout) that none can; the rest
    /// goes on in the background. Never removes a lock that somebody else holds by now.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Expired`] if the lock was not held any more: somebody else may have worked at
    /// the same time. [`ReleaseError::Unavailable`] if no quorum confirmed it in time. None if the lock is
    /// to [stay until its lease runs out](crate::LockRequest::keep): the nodes are not asked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases in the background, as dropping the guard does.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let LockHandle { context, held } = self.handle.clone();
        let _under_way = context.cleanup_tasks.under_way();
        // Until here, dropping this future drops the guard.
        let moves = context.settle().await;
        // The ballot takes over from the first poll on; this future has been polled.
        // Another guard of the same scope may share the lock.
        if !self.end() {
            return Ok(());
        }
        let Some(permit) = context.queues.pass_on(&held) else { return Ok(()) };
        let runs_out = held.runs_out();
        let mut release = context.ballot.release(Arc::clone(held.attempt()), runs_out).await;
        if matches!(release, Release::Unavailable(_)) && context.runtimes.moves() != moves {
            context.settle().await;
            release = context.ballot.release(Arc::clone(held.attempt()), runs_out).await;
            if matches!(release, Release::Expired(_)) && !held.lease_remaining().is_zero() {
                // The first release goes on in the background, and was faster.
                release = Release::Released { listeners: 0 };
            }
        }
        let key = || held.attempt().key().clone();
        match release {
            Release::Released { listeners } => {
                permit.released(listeners);
                Ok(())
            }
            Release::Expired(votes) => {
                let key = key();
                Err(ReleaseError::Expired { key, votes })
            }
            Release::Unavailable(votes) => {
                let key = key();
                Err(ReleaseError::Unavailable { key, votes })
            }
        }
    }

    /// Ends the holding in this process, and returns whether the nodes are to be told: not while
    /// another guard shares it.
    fn end(&mut self) -> bool {
        let LockHandle { context, held } = &self.handle;
        self.released = true;
        if !held.unshare() {
            return false;
        }
        held.give_back();
        context.keeper.remove(held);
        true
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.released || !self.end() {
            return;
        }
        let LockHandle { context, held } = &self.handle;
        context.queues.give_up(held);
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", self.key())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
