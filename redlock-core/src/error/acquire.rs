//! The error of an acquisition.

use std::time::Duration;

use super::{InvalidOption, LostError, Votes};
use crate::key::{KeyError, LockKey};
use crate::lock::OwnerLabel;

/// The error of an acquisition. The caller does not hold the lock, and the attempt leaves nothing on the
/// nodes, except for a clean-up that may still be in progress.
///
/// The message contains neither the key nor the names of nodes, so that it may be sent to a client. For logs,
/// [`diagnostics`](Self::diagnostics) adds both.
///
/// | variant | cause | retry |
/// |---|---|---|
/// | [`Contended`](Self::Contended) | another holder has the lock | yes, later |
/// | [`Split`](Self::Split) | several callers asked at once, and none of them got a quorum of nodes | yes |
/// | [`Unavailable`](Self::Unavailable) | no quorum of nodes replied | when the nodes are back |
/// | [`TimedOut`](Self::TimedOut) | the lease was over before a quorum of nodes had granted the lock, because the nodes, the network or this process were slow | with a longer lease |
/// | [`Lost`](Self::Lost) | the lock was acquired, and lost before its work began | yes |
/// | [`ForeignKey`](Self::ForeignKey) | the value at the key is not a lock of this dialect; in ZooKeeper, the folder has a child of another recipe | when the lock of the other dialect is released, or the foreign value was removed |
/// | [`InvalidKey`](Self::InvalidKey) | the key is invalid | no |
/// | [`InvalidOption`](Self::InvalidOption) | an option is invalid | no |
/// | [`AlreadyHeld`](Self::AlreadyHeld) | the same scope, such as the same web request, holds the lock | no |
/// | [`TooManyWaiters`](Self::TooManyWaiters) | too many callers of this process wait for the lock | yes, later |
/// | [`Draining`](Self::Draining) | the manager grants no new locks, because its process stops | in another process |
/// | [`ShutDown`](Self::ShutDown) | the manager was shut down | no |
/// | [`RuntimeEnded`](Self::RuntimeEnded) | the Tokio runtime of the manager has ended | no |
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another holder has the lock, and the waiting time, if any, is over.
    #[error("{}", contention(*.remaining, .votes))]
    #[non_exhaustive]
    Contended {
        /// The key of the lock.
        key: LockKey,
        /// The rest of the holder's lease, counted from the refusal. The holder may release the lock
        /// before, or extend it. `None` if it is not known: too few nodes refuse the lock.
        remaining: Option<Duration>,
        /// The label of the holder; not in the message, because it may be sent to a client. `None` if the holder has none, or if it
        /// is not known:
        ///
        /// * too few nodes report the same label: these and the nodes without a vote are no quorum;
        /// * a waiting writer keeps readers out, or a [fair](crate::LockRequest::fair) caller is first;
        /// * no node was asked.
        holder: Option<OwnerLabel>,
        /// The vote of each node. Empty if the votes did not decide: another caller of this
        /// manager holds the lock (then there is a `remaining`), a [fair](crate::LockRequest::fair) caller is first, or
        /// the waiting time ended before this caller's turn. The message says which.
        votes: Votes,
    },
    /// The votes are split: several callers asked for the lock at the same time, each got some nodes, and none has a
    /// quorum. So nobody holds the lock. The caller has released its nodes and asked again after random pauses, up to 6
    /// times without a waiting time, and its last attempt was split, too.
    #[error("the votes are split: several callers asked at once, and none has a quorum of nodes")]
    #[non_exhaustive]
    Split {
        /// The key of the lock.
        key: LockKey,
        /// The vote of each node.
        votes: Votes,
    },
    /// No quorum of nodes replied in time. Another caller may or may not hold the lock.
    #[error("no quorum of nodes answered")]
    #[non_exhaustive]
    Unavailable {
        /// The key of the lock.
        key: LockKey,
        /// The vote of each node.
        votes: Votes,
    },
    /// The lease, less the clock drift, was over before a quorum of nodes had granted the lock: a quorum
    /// granted it too late, or had not replied yet. Grants were released.
    #[error("no quorum granted the lock within its lease of {expire:?} (waited {elapsed:?})")]
    #[non_exhaustive]
    TimedOut {
        /// The key of the lock.
        key: LockKey,
        /// The time that the votes took.
        elapsed: Duration,
        /// The requested lease.
        expire: Duration,
        /// The vote of each node.
        votes: Votes,
    },
    /// The lock was acquired, but was lost before the work under it began: its lease ended, because this process was late
    /// or a service behind the lock was not ready, or the nodes no longer have it. The work has not begun. Only front ends
    /// that run work return this error, such as [`LockRequest::run`](crate::LockRequest::run).
    #[error("the lock was lost before the work under it began: {}", .0.cause())]
    Lost(LostError),
    /// The value at the key is not a lock of this [`Dialect`](crate::Dialect), on at least one node that
    /// the quorum depends on: it has no time to live, has another type, or lives longer than any lease. In ZooKeeper, the
    /// folder of the lock has a child of another recipe, or it cannot have children.
    /// Waiting does not help, because such a value would look like a lock that is held for ever.
    #[error("the value at the key of the lock is not a lock of this dialect or recipe")]
    #[non_exhaustive]
    ForeignKey {
        /// The key of the lock.
        key: LockKey,
        /// The vote of each node.
        votes: Votes,
    },
    /// The key is invalid. No node was asked.
    #[error("invalid lock key: {0}")]
    InvalidKey(#[from] KeyError),
    /// An option is out of its range, or cannot be combined with another option. No node was asked.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
    /// The same [scope](crate::scope()), such as the same web request, holds the lock, and would wait
    /// for itself. A [reentrant](crate::LockRequest::reentrant) request joins the lock instead, unless the
    /// lock is [shared](crate::LockRequest::shared) and the request is exclusive. No node was asked.
    #[error("the lock is already held by the same request")]
    #[non_exhaustive]
    AlreadyHeld {
        /// The key of the lock.
        key: LockKey,
    },
    /// The queue for the lock is full: [`max_waiters`](crate::LockManagerBuilder::max_waiters) callers
    /// of this process wait for the lock. No node was asked.
    #[error("{limit} callers already wait for the lock")]
    #[non_exhaustive]
    TooManyWaiters {
        /// The key of the lock.
        key: LockKey,
        /// The value of `max_waiters`.
        limit: usize,
    },
    /// [`LockManager::drain`](crate::LockManager::drain) was called, and neither the scope nor the task of the caller
    /// holds a lock of the manager. A waiter leaves its queue with this error.
    #[error("the lock manager is draining, and grants no new locks")]
    Draining,
    /// [`LockManager::shutdown`](crate::LockManager::shutdown) was called. No node was asked.
    #[error("the lock manager was shut down")]
    ShutDown,
    /// The [runtime](crate::LockManager#runtime) that ran the connections and renewals of the manager has ended. Use one
    /// manager for each runtime: in tests, one for each test. No node was asked.
    #[error("the Tokio runtime of the lock manager has ended; use one manager for each runtime")]
    RuntimeEnded,
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
        Self::Contended { key, remaining, holder: None, votes }
    }

    /// Adds the label of the holder to a [`Contended`](Self::Contended) error. Returns any other error as it is.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::{LockError, LockKey, OwnerLabel, Votes};
    ///
    /// let error = LockError::contended(LockKey::new("order:42")?, None, Votes::default());
    /// let error = error.with_holder(OwnerLabel::new("shop-7f9c:4121")?);
    /// assert_eq!(error.holder().map(OwnerLabel::as_str), Some("shop-7f9c:4121"));
    /// assert!(!error.to_string().contains("shop"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_holder(self, label: OwnerLabel) -> Self {
        self.with_holder_if_known(Some(label))
    }

    /// Adds the label of the holder, if it is known.
    pub(crate) fn with_holder_if_known(mut self, label: Option<OwnerLabel>) -> Self {
        if let Self::Contended { holder, .. } = &mut self {
            *holder = label;
        }
        self
    }

    /// Creates a [`Split`](Self::Split) error, for tests of code that handles a `LockError`.
    pub fn split(key: LockKey, votes: Votes) -> Self {
        Self::Split { key, votes }
    }

    /// Creates an [`Unavailable`](Self::Unavailable) error, for tests of code that handles a `LockError`.
    pub fn unavailable(key: LockKey, votes: Votes) -> Self {
        Self::Unavailable { key, votes }
    }

    /// Creates a [`TimedOut`](Self::TimedOut) error, for tests of code that handles a `LockError`.
    pub fn timed_out(key: LockKey, elapsed: Duration, expire: Duration, votes: Votes) -> Self {
        Self::TimedOut { key, elapsed, expire, votes }
    }

    /// Creates a [`ForeignKey`](Self::ForeignKey) error, for tests of code that handles a `LockError`.
    pub fn foreign_key(key: LockKey, votes: Votes) -> Self {
        Self::ForeignKey { key, votes }
    }

    /// Creates an [`AlreadyHeld`](Self::AlreadyHeld) error, for tests of code that handles a `LockError`.
    pub fn already_held(key: LockKey) -> Self {
        Self::AlreadyHeld { key }
    }

    /// Creates a [`TooManyWaiters`](Self::TooManyWaiters) error, for tests of code that handles
    /// a `LockError`.
    pub fn too_many_waiters(key: LockKey, limit: usize) -> Self {
        Self::TooManyWaiters { key, limit }
    }

    /// Returns the key of the lock; `None` if the key was invalid, the manager was draining or shut down, or the error of
    /// an option does not come from an acquisition.
    pub fn key(&self) -> Option<&LockKey> {
        self.key_and_votes().0
    }

    /// Returns the label of the process that has the lock, of a [`Contended`](Self::Contended) error. `None` if it is not known,
    /// and for other errors. For logs and operators: an HTTP answer must not contain it.
    pub fn holder(&self) -> Option<&OwnerLabel> {
        match self {
            Self::Contended { holder, .. } => holder.as_ref(),
            _ => None,
        }
    }

    /// Returns the vote of each node; `None` for errors that occur before any node is asked.
    pub fn votes(&self) -> Option<&Votes> {
        self.key_and_votes().1
    }

    /// Returns the holder of a lock for which no node was asked.
    pub(super) fn unasked_holder(&self) -> Option<&OwnerLabel> {
        self.holder().filter(|_| self.votes().is_some_and(Votes::is_empty))
    }

    fn key_and_votes(&self) -> (Option<&LockKey>, Option<&Votes>) {
        match self {
            Self::Contended { key, votes, .. }
            | Self::Split { key, votes }
            | Self::Unavailable { key, votes }
            | Self::TimedOut { key, votes, .. }
            | Self::ForeignKey { key, votes } => (Some(key), Some(votes)),
            Self::Lost(lost) => (Some(lost.key()), lost.votes()),
            Self::AlreadyHeld { key } | Self::TooManyWaiters { key, .. } => (Some(key), None),
            Self::InvalidOption(error) => (error.key(), None),
            Self::InvalidKey(_) | Self::Draining | Self::ShutDown | Self::RuntimeEnded => {
                (None, None)
            }
        }
    }

    /// Returns whether another holder has the lock, so that somebody else does the work. False for a [`Split`](Self::Split),
    /// and for errors of the infrastructure and of the caller.
    ///
    /// Also true for a [fair](crate::LockRequest::fair) caller while other callers stand before it. These may have been
    /// killed, so that nobody does the work. Jobs that are left to another holder need a lock without `fair`.
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Contended { .. })
    }

    /// Returns whether the votes are [split](Self::Split): no holder has a quorum of the nodes of this manager, so that nobody
    /// does the work.
    pub fn is_split(&self) -> bool {
        matches!(self, Self::Split { .. })
    }
}

/// Returns the message of a contended lock.
fn contention(remaining: Option<Duration>, votes: &Votes) -> String {
    let holder = match (votes.is_empty(), remaining) {
        (true, None) => return "other callers wait for the lock, and come first".to_owned(),
        (true, Some(_)) => "another caller of this process",
        (false, _) => "another holder",
    };
    let time = remaining.map_or_else(String::new, |remaining| format!(" for {remaining:?}"));
    format!("the lock is held by {holder}{time}")
}
