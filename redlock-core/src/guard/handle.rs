//! A view of a lock that is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::lost::Lost;
use crate::ballot::Extension;
use crate::context::Context;
use crate::error::{ExtendError, Votes};
use crate::key::LockKey;
use crate::lease::{Held, State};
use crate::log_limit::LogLimit;

/// A view of a lock that somebody holds: the same lease as its guard's, without the right to
/// release it. Cloning is cheap. Outlives the guard, and then says that nothing is held.
#[derive(Clone)]
pub struct LockHandle {
    pub(super) context: Arc<Context>,
    pub(super) held: Arc<Held>,
}

/// How a lock stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockState {
    /// It is held.
    Held,
    /// It is held, but the last extension was not confirmed by a quorum of nodes, or no quorum can
    /// be reached at the moment. It is lost when its validity ends before that changes.
    Suspect,
    /// It is lost. That never changes again.
    Lost,
    /// Its holder released it.
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
    /// What is locked, without the manager's prefix.
    pub fn key(&self) -> &LockKey {
        self.held.attempt().key()
    }

    /// How often like events of the manager's locks are logged. No public API.
    #[doc(hidden)]
    pub fn log_limit(&self) -> &Arc<LogLimit> {
        &self.context.log_limit
    }

    /// How long the holder may still believe in the lock; zero once it may not, or has released it.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Whether the lock is still held, as far as can be known without asking the nodes.
    pub fn is_valid(&self) -> bool {
        self.held.is_valid()
    }

    /// How the lock stands, see [`LockState`].
    pub fn state(&self) -> LockState {
        let Self { context, held } = self;
        match held.state() {
            State::Released => LockState::Released,
            State::Held if held.is_valid() => {
                if held.is_unconfirmed() || !context.ballot.has_quorum() {
                    LockState::Suspect
                } else {
                    LockState::Held
                }
            }
            State::Held | State::Lost => LockState::Lost,
        }
    }

    /// Resolves when the lock is lost, as [`LockGuard::lost`](crate::LockGuard::lost) does.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub fn lost(&self) -> Lost {
        Lost::new(Arc::clone(&self.held))
    }

    /// Makes the lease last at least `expire` from now, as [`LockGuard::extend`](crate::LockGuard::extend) does.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::extend`](crate::LockGuard::extend); [`ExtendError::Lost`] also where the holder has released the lock.
    ///
    /// # Cancel safety
    ///
    /// As [`LockGuard::extend`](crate::LockGuard::extend).
    pub async fn extend(&self, expire: Duration) -> Result<(), ExtendError> {
        let Self { context, held } = self;
        context.check_expire(expire)?;
        let key = || held.attempt().key().clone();
        if !held.is_valid() {
            return Err(ExtendError::Lost { key: key(), votes: Votes::default() });
        }
        let moves = context.settle().await;
        let mut extension = held.extend(&context.ballot, expire).await;
        if matches!(extension, Extension::Unavailable(_)) && context.runtimes.moves() != moves {
            context.settle().await;
            extension = held.extend(&context.ballot, expire).await;
        }
        match extension {
            Extension::Extended { since } if held.extended(since, expire) => Ok(()),
            Extension::Extended { .. } => {
                Err(ExtendError::Lost { key: key(), votes: Votes::default() })
            }
            Extension::Lost(votes) => {
                held.denied();
                context.keeper.remove(held);
                Err(ExtendError::Lost { key: key(), votes })
            }
            Extension::Unavailable(votes) => {
                held.not_extended();
                Err(ExtendError::Unavailable { key: key(), votes })
            }
        }
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockHandle")
            .field("key", self.key())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
