//! What a node is asked, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Vote;
use crate::lock::{LockSpec, Token};

/// One operation on one lock. It owns all that the node needs, so that the node may execute it later or
/// in another task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Op {
    /// The lock.
    pub spec: Arc<LockSpec>,
    /// The random value that proves the ownership. Each attempt to acquire has a token of its own. It is
    /// a secret: never log it, because whoever knows it can release the lock.
    pub token: Token,
    /// What to do with the lock.
    pub action: Action,
}

impl Op {
    pub(crate) fn new(spec: &Arc<LockSpec>, token: Token, action: Action) -> Self {
        Self { spec: Arc::clone(spec), token, action }
    }
}

/// What to do with a lock.
///
/// | action | [`Vote::Granted`] | other votes |
/// |---|---|---|
/// | `Acquire` | the lock was free, and is now held by the token | [`Vote::Held`]: another token holds it, or this one already; nothing was changed |
/// | `Extend`, `Confirm`, `Release` | the token holds the lock, and it was done | [`Vote::Gone`]: the token does not hold it; nothing was changed |
///
/// Every action may also vote [`Vote::Foreign`], where something that is no lock stands at a key, and
/// [`Vote::Failed`]. A node replies to an action that it does not know by
/// [`NodeError::Server`](crate::NodeError::Server).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Set the lock, if it is free.
    #[non_exhaustive]
    Acquire {
        /// The lock ends by itself after this time, counted from its execution. Round it up where the
        /// store counts in larger units: a node must not forget a lock before its holder does.
        lease: Duration,
        /// Whether to number the holder: see [`Reply::number`].
        fenced: bool,
        /// Whether a refusal should say for how long another holds the lock, which may cost the node
        /// another round trip. If this is `false`, the caller does not need the time, and the node replies
        /// without that round trip. A node that learns the time together with the refusal always tells
        /// it. One that never does (`Held { remaining: None }`) makes its waiters poll.
        lookup: bool,
    },
    /// Let the lease last for at least this time from now. Never shorten it.
    #[non_exhaustive]
    Extend {
        /// The new lease.
        lease: Duration,
    },
    /// Raise the fencing counter of the lock to this number, unless it is higher already.
    #[non_exhaustive]
    Confirm {
        /// A number that another node, or an earlier operation, has given.
        number: i64,
    },
    /// Remove the lock, and notify its [subscribers](super::Node::subscribe).
    #[non_exhaustive]
    Release {
        /// Instead of removing the lock, let its lease end after this time, if it lasts longer. The
        /// subscribers are notified nevertheless: the lock ends sooner than they were told.
        min_hold: Option<Duration>,
    },
}

/// The answer of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The vote.
    pub vote: Vote,
    /// The number of the holder, where a fenced `Acquire` was granted. From 1 to 2^53 - 1. Each number
    /// must be greater than every number that the node has given or [confirmed](Action::Confirm) before,
    /// for any lock or at least for a lock with these keys. A node that may lose its data should not
    /// count below the time in microseconds since 1970, so that its numbers grow even then.
    pub number: Option<i64>,
    /// After a granted `Release`: how many subscribers were notified, as far as the node knows. If there
    /// are more than this process has, the next waiter of this process gives the others a turn.
    pub listeners: Option<usize>,
}

impl Reply {
    /// A reply that consists of a vote.
    pub fn new(vote: Vote) -> Self {
        Self { vote, number: None, listeners: None }
    }

    /// Adds the number of the holder.
    #[must_use]
    pub fn with_number(self, number: i64) -> Self {
        Self { number: Some(number), ..self }
    }

    /// Adds the number of subscribers that were notified.
    #[must_use]
    pub fn with_listeners(self, listeners: usize) -> Self {
        Self { listeners: Some(listeners), ..self }
    }
}

impl From<Vote> for Reply {
    fn from(vote: Vote) -> Self {
        Self::new(vote)
    }
}
