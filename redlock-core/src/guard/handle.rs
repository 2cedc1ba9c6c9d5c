//! A view of a held lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;

use crate::context::Context;
use crate::error::{HoldError, LostError, Votes};
use crate::fencing_token::FencingToken;
use crate::key::LockKey;
use crate::lease::{HoldState, Holding};
use crate::log_limit::LogLimit;

/// A view of a held lock: it has the lease of the guard, but cannot release the lock.
///
/// Cloning is cheap. A handle may outlive the guard, and then reports that the lock is not held.
#[derive(Clone)]
pub struct LockHandle {
    pub(crate) context: Arc<Context>,
    pub(super) held: Arc<Holding>,
}

/// The state of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockState {
    /// The lock is held and valid.
    Held,
    /// The lock is held and valid, but a quorum of nodes did not confirm the last extension, or cannot
    /// be reached at the moment. Unless an extension succeeds, the lock is lost when its validity ends.
    Suspect,
    /// The lock is lost. This state is final.
    Lost,
    /// The holder released the lock.
    Released,
}

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Suspect => "suspect",
            Self::Lost => "lost",
            Self::Released => "released",
        })
    }
}

impl LockHandle {
    /// Returns the keys of the lock, without the manager's prefix: at least one, sorted and different. Only locks of
    /// [`LockManager::lock_all`](crate::LockManager::lock_all) have several.
    pub fn keys(&self) -> &[LockKey] {
        self.held.attempt().spec().keys()
    }

    /// Returns the name of the lock, for tables and metrics: [`named`](crate::LockRequest::named) of its request, the template
    /// of its key in a front end of `redlock-axum`, or `other`. Guards that have joined the lock of their scope have the name of its
    /// first request.
    pub fn name(&self) -> &str {
        self.held.name()
    }

    /// Returns whether others may hold the lock at the same time: whether the request was
    /// [shared](crate::LockRequest::shared), or had [permits](crate::LockRequest::permits), or the lock was
    /// [downgraded](crate::LockGuard::downgrade).
    pub fn is_shared(&self) -> bool {
        self.held.attempt().spec().mode().is_shared()
    }

    /// Returns whether the reader has joined the lock of another reader of its process: the nodes have one lock for both. See
    /// [`shared`](crate::LockRequest::shared). Its own end, its loss and its release are those of this guard alone.
    pub fn has_joined(&self) -> bool {
        self.held.has_joined()
    }

    /// Returns the number of this holder, if its request was [fenced](crate::LockRequest::fenced). An extension keeps
    /// the number, and guards that have joined the lock have the same number.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.held.token()
    }

    /// Returns the rate limit of the manager's log events. No public API.
    #[doc(hidden)]
    pub fn log_limit(&self) -> &Arc<LogLimit> {
        &self.context.log_limit
    }

    /// Returns how long the lock stays valid; zero if it is lost or was released.
    ///
    /// The validity counts from before the first command was sent. Each call compares it with the clock of the system,
    /// which goes on while the machine sleeps.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Returns whether the lock is still valid, as far as this process knows. Does not ask the nodes.
    pub fn is_valid(&self) -> bool {
        self.held.is_valid()
    }

    /// Returns the state of the lock, see [`LockState`].
    pub fn state(&self) -> LockState {
        let Self { context, held } = self;
        match held.state() {
            HoldState::Released | HoldState::HandedOver => LockState::Released,
            HoldState::Held if held.is_valid() => {
                if held.attempt().last_extension.has_failed() || !context.ballot.has_quorum() {
                    LockState::Suspect
                } else {
                    LockState::Held
                }
            }
            HoldState::Held | HoldState::Lost(_) => LockState::Lost,
        }
    }

    /// Resolves when the lock is lost: its lease ran out, could not be renewed in time, or a quorum of
    /// nodes no longer has the lock. Returns the cause, with the votes of the last extension. Never resolves if the lock is
    /// released first.
    ///
    /// From the first call on, the nodes of an exclusive lock [hint](crate::node::LossHints) that it is gone, if they can. The
    /// loss of a lock that was deleted or broken is then known within a few round trips, and otherwise at its next renewal.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Any number of these futures may wait at once. A future that is created after the
    /// loss resolves at once.
    pub fn lost(&self) -> Lost {
        let Self { context, held } = self;
        context.keeper.listen(held, &context.ballot.nodes);
        let held = Arc::clone(held);
        Lost(Loss::Awaited(Box::pin(async move {
            held.lost().await;
            held.last_loss()
        })))
    }

    /// Extends the lease to at least `expire` from now, from 10 ms to 7 days. Never shortens the lease.
    ///
    /// # Errors
    ///
    /// * [`HoldError::Lost`] if the lock is lost or was released.
    /// * [`HoldError::Unavailable`] if no quorum of nodes confirmed the extension in time. The lock
    ///   then stays valid for the time that [`remaining`](Self::remaining) returns.
    /// * [`HoldError::InvalidOption`] if `expire` is out of range.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the holder keeps its old lease. On the servers the lease may be longer.
    pub async fn extend(&self, expire: Duration) -> Result<(), HoldError> {
        let Self { context, held } = self;
        context.limits.check_expire(expire)?;
        if !held.is_valid() {
            return Err(self.loss().into());
        }
        let extended = held.extend(&context.ballot, expire).await;
        let extended = extended.map(|since| {
            held.record_extension(since, expire);
        });
        self.checked(extended)
    }

    /// Returns the result of an operation on the held lock, or [`HoldError::Lost`] if its lease is over meanwhile. Reports a
    /// loss that the nodes have reported.
    pub(super) fn checked(&self, result: Result<(), HoldError>) -> Result<(), HoldError> {
        let Self { context, held } = self;
        match &result {
            Err(HoldError::Lost(lost)) => context.keeper.lose_denied(held, &lost.votes),
            Err(HoldError::Unavailable { votes, .. }) if !held.is_valid() => {
                return Err(held.loss(votes.clone()).into());
            }
            Ok(()) if !held.is_valid() => return Err(held.loss(Votes::default()).into()),
            _ => {}
        }
        result
    }

    /// Returns the loss of a lock that is not valid any more. No public API.
    #[doc(hidden)]
    pub fn loss(&self) -> LostError {
        self.held.last_loss()
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockHandle")
            .field("keys", &self.keys())
            .field("remaining", &self.remaining())
            .field("has_joined", &self.has_joined())
            .finish_non_exhaustive()
    }
}

/// A future that resolves when a lock is lost. Returned by [`LockHandle::lost`](crate::LockHandle::lost).
///
/// A lost lock stays lost, so a `Lost` that has resolved may be polled again, and resolves at once.
///
/// # Cancel safety
///
/// Cancel safe.
#[must_use = "futures do nothing unless they are polled"]
pub struct Lost(Loss);

enum Loss {
    Awaited(Pin<Box<dyn Future<Output = LostError> + Send + Sync>>),
    /// Boxed, because each handler has a place for it.
    Known(Box<LostError>),
}

impl Future for Lost {
    type Output = LostError;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<LostError> {
        let lost = match &mut self.0 {
            Loss::Awaited(future) => ready!(future.as_mut().poll(context)),
            Loss::Known(lost) => return Poll::Ready(LostError::clone(lost)),
        };
        self.0 = Loss::Known(Box::new(lost.clone()));
        Poll::Ready(lost)
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").finish_non_exhaustive()
    }
}
