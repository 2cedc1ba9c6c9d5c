//! Errors of acquiring a lock.

use std::time::Duration;

use super::{InvalidOption, Votes};
use crate::key::{KeyError, LockKey};

/// Why a lock was not acquired. In every case the caller does not hold it, and nothing of the attempt stays
/// behind on the nodes beyond a clean-up that is under way.
///
/// | variant | means | worth another try |
/// |---|---|---|
/// | [`Contended`](Self::Contended) | somebody else holds the lock | yes, later |
/// | [`Unavailable`](Self::Unavailable) | no quorum of nodes answered | when the nodes are back |
/// | [`TimedOut`](Self::TimedOut) | the lease was over before a quorum of nodes had granted it, because they, the network or this process were slow | with a longer lease |
/// | [`ForeignKey`](Self::ForeignKey) | something that is no lock of this dialect stands at the key | after somebody removed it |
/// | [`InvalidKey`](Self::InvalidKey) | the key cannot be used | no |
/// | [`InvalidOption`](Self::InvalidOption) | an option is out of its range | no |
/// | [`AlreadyHeld`](Self::AlreadyHeld) | the same request holds the lock already | no |
/// | [`TooManyWaiters`](Self::TooManyWaiters) | too many callers of this process wait for the lock | yes, later |
/// | [`ShutDown`](Self::ShutDown) | the manager was shut down | no |
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else holds the lock, and the waiting time, if there was any, is over.
    #[error("the lock {key} is held by another{}; {votes}", for_another(*.remaining))]
    #[non_exhaustive]
    Contended {
        /// What was to be locked.
        key: LockKey,
        /// When the present holder's lease runs out, counted from the refusal, if it is neither
        /// released nor extended before. `None` where no holder has a quorum (several callers got
        /// some nodes each, and all of them give up theirs).
        remaining: Option<Duration>,
        /// What each node said; empty where this process holds the lock itself, so that no node
        /// was asked.
        votes: Votes,
    },
    /// No quorum of nodes answered in time. Says nothing of who holds the lock.
    #[error("no quorum of nodes answered for the lock {key}; {votes}")]
    #[non_exhaustive]
    Unavailable {
        /// What was to be locked.
        key: LockKey,
        /// What each node said.
        votes: Votes,
    },
    /// The votes took so long that nothing of the lease was left after deducting the clock drift: a
    /// quorum granted the lock too late, or had not answered yet. Grants were given back.
    #[error(
        "the votes for the lock {key} took {elapsed:?}, which leaves nothing of its lease of {expire:?}; {votes}"
    )]
    #[non_exhaustive]
    TimedOut {
        /// What was to be locked.
        key: LockKey,
        /// How long the votes took.
        elapsed: Duration,
        /// The lease that was asked for.
        expire: Duration,
        /// What each node said.
        votes: Votes,
    },
    /// A key that is no lock of this [`Dialect`](crate::Dialect) stands at this name on at least one
    /// node that the quorum depends on: it has no time to live, another type, or lives longer than
    /// any lease. It would look held for ever.
    #[error("a key that is no lock of this dialect stands at the name of the lock {key}; {votes}")]
    #[non_exhaustive]
    ForeignKey {
        /// What was to be locked.
        key: LockKey,
        /// What each node said.
        votes: Votes,
    },
    /// The key cannot be used.
    #[error("invalid lock key: {0}")]
    InvalidKey(#[from] KeyError),
    /// An option is out of its range. No node was asked.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
    /// The same [scope](crate::scope()), that is the same request, holds the lock already, and would
    /// wait for itself. Ask for a [reentrant](crate::LockRequest::reentrant) lock to share it. No
    /// node was asked.
    #[error("the lock {key} is held by the same request already")]
    #[non_exhaustive]
    AlreadyHeld {
        /// What was to be locked.
        key: LockKey,
    },
    /// So many callers of this process wait for the lock already that one more is refused. No node
    /// was asked. See [`max_waiters`](crate::LockManagerBuilder::max_waiters).
    #[error("{limit} callers wait for the lock {key} already")]
    #[non_exhaustive]
    TooManyWaiters {
        /// What was to be locked.
        key: LockKey,
        /// How many may wait.
        limit: usize,
    },
    /// [`LockManager::shutdown`](crate::LockManager::shutdown) was called. No node was asked.
    #[error("the lock manager was shut down")]
    ShutDown,
}

impl LockError {
    /// Creates a [`Contended`](Self::Contended) error, for tests of code that handles a `LockError`.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::{KeyError, LockError, LockKey, Votes};
    ///
    /// #[derive(Debug, PartialEq)]
    /// enum ShopError {
    ///     Busy,
    ///     Internal,
    /// }
    ///
    /// impl From<LockError> for ShopError {
    ///     fn from(error: LockError) -> Self {
    ///         if error.is_contended() { Self::Busy } else { Self::Internal }
    ///     }
    /// }
    ///
    /// let key = LockKey::new("order:42")?;
    /// let contended = LockError::contended(key.clone(), None, Votes::default());
    /// assert_eq!(ShopError::from(contended), ShopError::Busy);
    /// let unavailable = LockError::unavailable(key, Votes::default());
    /// assert_eq!(ShopError::from(unavailable), ShopError::Internal);
    /// # Ok::<(), KeyError>(())
    /// ```
    pub fn contended(key: LockKey, remaining: Option<Duration>, votes: Votes) -> Self {
        Self::Contended { key, remaining, votes }
    }

    /// Creates an [`Unavailable`](Self::Unavailable) error, for tests of code that handles a `LockError`.
    pub fn unavailable(key: LockKey, votes: Votes) -> Self {
        Self::Unavailable { key, votes }
    }

    /// What each node said; `None` where none was asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Contended { votes, .. }
            | Self::Unavailable { votes, .. }
            | Self::TimedOut { votes, .. }
            | Self::ForeignKey { votes, .. } => Some(votes),
            Self::InvalidKey(_)
            | Self::InvalidOption(_)
            | Self::AlreadyHeld { .. }
            | Self::TooManyWaiters { .. }
            | Self::ShutDown => None,
        }
    }

    /// Whether somebody else holds the lock, as against an error of the infrastructure or of the
    /// caller.
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Contended { .. })
    }
}

fn for_another(remaining: Option<Duration>) -> String {
    remaining.map_or_else(String::new, |remaining| format!(" for {remaining:?}"))
}
