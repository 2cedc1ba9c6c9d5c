//! The operations that a manager sends to a node, and the replies of the node.

use std::time::Duration;

use crate::error::Vote;
use crate::lock::{LockSpec, Mark, Token};

/// One operation on one lock. It owns all of its data, so that the node may execute it later or in another
/// task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Op {
    /// The lock.
    pub spec: LockSpec,
    /// The random value that proves ownership. Each attempt to acquire a lock has its own token. The token
    /// is a secret: never log it, because it is enough to release the lock.
    pub token: Token,
    /// The action on the lock.
    pub action: Action,
}

impl Op {
    pub(crate) fn new(spec: &LockSpec, token: Token, action: Action) -> Self {
        Self { spec: spec.clone(), token, action }
    }
}

/// An action on a lock.
///
/// | action | [`Vote::Agreed`] | other votes |
/// |---|---|---|
/// | `Acquire` | the lock was free, or its holders share it with this token, or this token holds it already; the token now holds it | [`Vote::Held`]: other tokens hold the lock; apart from the mark, nothing was changed |
/// | `Extend`, `Confirm`, `Release`, `Downgrade` | the token holds the lock, and the action was executed | [`Vote::NotHeld`]: the token does not hold the lock; nothing was changed |
/// | `Withdraw` | the mark was removed, or there was none | |
///
/// A lock of several [keys](LockSpec::keys) is held only if the token holds each of them. `Acquire` sets all
/// of them or none. If the token has lost a key, `Extend` and `Confirm` change nothing, and `Release`
/// releases the keys that the token still holds, and votes [`Vote::NotHeld`]. Only a node with
/// [`several_keys`](super::Capabilities::several_keys) gets such locks. There is one exception to the
/// table: the manager sets a lock again on a node that has lost it, and the node may still have some of its
/// keys. `Acquire` then sets all of them.
///
/// A refused `Acquire` names the holder by [`Token::holder_id`](Token::holder_id), or by
/// [`HolderId::of`](crate::HolderId::of) of the text of the token that the store has, if one token alone holds the keys that are
/// held, and does not share them. A manager with several nodes finds out in this way that its callers and those of other
/// managers have some nodes each, and lets its callers ask again. A refusal that names nobody counts as that of a holder.
///
/// On every action, a node may also vote [`Vote::Foreign`] if a key holds something other than a lock, and
/// [`Vote::Failed`]. A node replies to an unknown action with
/// [`NodeError::Server`](crate::NodeError::Server).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Sets the lock if it is free.
    #[non_exhaustive]
    Acquire {
        /// The time after which the store frees the lock by itself, counted from the execution of the
        /// operation. A store that counts in larger units rounds it up: a node must not forget a lock
        /// before its holder does.
        lease: Duration,
        /// Whether the node gives the holder a fencing number, see [`Reply::number`].
        fenced: bool,
        /// A description of the caller, which most nodes ignore.
        ask: Ask,
    },
    /// Extends the lease to at least this time from now. Never shortens it.
    #[non_exhaustive]
    Extend {
        /// The new lease.
        lease: Duration,
    },
    /// Raises the fencing counter of the lock to this number, unless the counter is higher already.
    ///
    /// A manager with several nodes sends it after each fenced `Acquire`, with the greatest number of the nodes. Every
    /// manager, also over one node, sends it when a waiter of this process takes a lock over, with the number of the
    /// former holder plus one, and after it has set a lock again on a node that had lost it. Only a node with
    /// [`Fencing::Quorum`](super::Fencing::Quorum) gets it.
    #[non_exhaustive]
    Confirm {
        /// The fencing number of the present holder.
        number: i64,
    },
    /// Removes the lock, and notifies its [subscribers](super::Node::subscribe).
    #[non_exhaustive]
    Release {
        /// If set, the node does not remove the lock, but shortens its lease to this time. Never extends
        /// the lease. The node notifies the subscribers in this case too: the lock ends earlier than the
        /// refusals have reported.
        min_hold: Option<Duration>,
    },
    /// Turns the exclusive lock of the token into a shared one in the [mode](LockSpec::mode) of the operation, with the
    /// rest of its lease, and notifies the subscribers. Grants a lock that the token shares already.
    ///
    /// A later operation on the shared lock also covers an exclusive lock of the token, because the downgrade may not have
    /// reached this node.
    Downgrade,
    /// Removes the mark of a caller that gives up, and notifies the subscribers that wait for a shared lock if no
    /// other mark is left.
    #[non_exhaustive]
    Withdraw {
        /// The mark.
        mark: Mark,
    },
}

/// A description of the caller that asks for a lock. A node may ignore all of it, unless it takes
/// [marks](Reply::takes_marks) or keeps places in a queue of its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ask {
    /// Whether the caller does not need the holder and the remaining lease in a refusal, which may cost the node another
    /// round trip. A node that learns them together with the refusal always returns them. If a node never returns the
    /// remaining lease (`Held { remaining: None }`), its waiters poll.
    pub skip_lookup: bool,
    /// Whether the caller waits for the lock. Between its attempts, a waiting caller or another one of its process is
    /// [subscribed](super::Node::subscribe) to the releases. A node that keeps a place for its subscribers in a queue of
    /// the store gives the lock of that place to callers that wait, and not to others.
    pub waits: bool,
    /// Whether a node has said to this caller that it [takes marks](Reply::takes_marks) at this lock. Only then a node
    /// that takes marks has to distinguish living holders from the marks that were left behind: marks alone do not refuse
    /// the lock.
    pub met_marks: bool,
    /// The mark of a caller that has met marks, if it waits. If the node refuses the lock again, it sets or renews the mark.
    pub mark: Option<Mark>,
}

impl Ask {
    /// The first question of a caller that does not wait.
    pub(crate) const FIRST: Self =
        Self { skip_lookup: false, waits: false, met_marks: false, mark: None };
}

/// The reply of a node to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The vote.
    pub vote: Vote,
    /// The fencing number of the holder, after a granted `Acquire` with `fenced`. From 1 to 2^53 - 1. Each
    /// number must be greater than every number that the node has returned or
    /// [confirmed](Action::Confirm) before, for any lock or at least for a lock with the same keys. A node
    /// that may lose its data should return no number below the time in microseconds since 1970, so that
    /// its numbers grow even after such a loss.
    pub number: Option<i64>,
    /// The number of notified subscribers after an executed `Release`. If it is greater than the number of subscribers in
    /// this process, the next waiter of this process gives the waiters of other processes a turn. `None` if the node does
    /// not know it: the manager then assumes that other processes wait. A node may have counted them earlier if its store
    /// itself gives each process its turn.
    pub subscribers: Option<usize>,
    /// Whether a refused `Acquire` may leave a mark, which keeps out later callers that would share the lock with its
    /// holders. True for an exclusive lock that was refused only because others share it, or because it is the turn of
    /// callers that want to share it, see [`Turns`](super::Turns). The caller then asks once
    /// more, with [`met_marks`](Ask::met_marks).
    pub takes_marks: bool,
    /// The index, in [`LockSpec::keys`], of the first key for which the node refuses an `Acquire` with
    /// [`Vote::Held`] or [`Vote::Foreign`]. The caller waits for that key. A node may leave it out for a lock of
    /// one key.
    pub refused_key: Option<usize>,
}

impl Reply {
    /// Creates a reply that consists of a vote.
    pub fn new(vote: Vote) -> Self {
        Self { vote, number: None, subscribers: None, takes_marks: false, refused_key: None }
    }

    /// Adds the fencing number of the holder.
    #[must_use]
    pub fn with_number(self, number: i64) -> Self {
        Self { number: Some(number), ..self }
    }

    /// Adds the number of notified subscribers.
    #[must_use]
    pub fn with_subscribers(self, subscribers: usize) -> Self {
        Self { subscribers: Some(subscribers), ..self }
    }

    /// Adds that the caller may leave a mark, see [`takes_marks`](Self::takes_marks).
    #[must_use]
    pub fn with_marks(self) -> Self {
        Self { takes_marks: true, ..self }
    }

    /// Adds the index of the first key for which the node refuses the lock.
    #[must_use]
    pub fn with_refused_key(self, index: usize) -> Self {
        Self { refused_key: Some(index), ..self }
    }
}

impl From<Vote> for Reply {
    fn from(vote: Vote) -> Self {
        Self::new(vote)
    }
}
