//! The state of one process.

use super::evidence::Evidence;

/// The number of clients.
pub(super) const CLIENTS: usize = 2;

/// How far a request for the lock has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// The leader has not executed it yet.
    Sent,
    /// The child exists.
    Created,
    /// The queue was listed. The reply is on its way.
    Listed { is_first: bool, number: u8 },
}

/// A request for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Request {
    /// Ticks since it was sent.
    pub(super) age: u8,
    pub(super) stage: Stage,
    /// Whether the queue was empty before the request was sent. Recorded only if
    /// [`ListAfterTheCreation`](super::Rule::ListAfterTheCreation) is broken.
    pub(super) was_free: bool,
    /// Whether the client has a new session since then.
    pub(super) is_former: bool,
}

/// A lock that a client holds, with validity left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Guard {
    /// Ticks since it was asked for.
    pub(super) age: u8,
    pub(super) number: u8,
}

/// The state of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) evidence: Evidence,
    /// Ticks since it has sent a beat that the follower has not taken yet.
    pub(super) beat: Option<u8>,
    pub(super) request: Option<Request>,
    pub(super) guard: Option<Guard>,
    /// Whether the client has asked for the removal of its child.
    pub(super) leaves: bool,
    /// The number of the creation of the child, if locks have fencing numbers.
    pub(super) czxid: u8,
}

impl Client {
    /// Returns whether the client may ask for the lock, or for the same lock again if its child is in the queue.
    pub(super) fn may_ask(&self) -> bool {
        self.request.is_none() && self.guard.is_none() && !self.leaves
    }
}
