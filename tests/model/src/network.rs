//! The messages between one client and one node.

use std::fmt;

/// A request from a client to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// `SET key token NX PX lease`, or the script `take`, which also says yes if the client owns the key.
    Set,
    /// `EXPIRE key lease`: sent only if [`LeaseWithTheKey`](crate::Rule::LeaseWithTheKey) is broken.
    Expire,
    /// Raise the node's counter to the client's number, if the client still owns the key.
    WriteBack,
    /// Begin the lease anew, if the client still owns the key.
    Extend,
    /// The clean-up: delete the key, if the client still owns it.
    Delete,
    /// Share the lock, if nobody holds it exclusively.
    Enter,
    /// Turn the client's exclusive lock into a share.
    Downgrade,
}

impl Request {
    pub(crate) const ALL: [Self; 7] = [
        Self::Set,
        Self::Expire,
        Self::WriteBack,
        Self::Extend,
        Self::Delete,
        Self::Enter,
        Self::Downgrade,
    ];

    /// Returns whether the request asks for the lock.
    pub(crate) const fn acquires(self) -> bool {
        matches!(self, Self::Set | Self::Enter)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// One of the two attempts of a client that the model distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attempt {
    /// The client's current attempt, or its last one.
    Present,
    /// The client's previous attempt, while a key or a message of it still exists.
    Former,
}

/// One request on its way to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    pub(crate) client: usize,
    pub(crate) node: usize,
    pub(crate) attempt: Attempt,
    pub(crate) request: Request,
}

/// The requests of one attempt to one node that have not arrived yet.
///
/// A set, not a queue: the requests arrive at any later time, in any order, or never. The library relies
/// on one order only, which is the rule
/// [`CleanUpBehindItsSet`](crate::Rule::CleanUpBehindItsSet).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InFlight {
    requests: u8,
    /// The number that [`Request::WriteBack`] carries.
    number: u8,
    /// Whether the node has executed the clean-up. This is no message: the claim
    /// [`NoOrphan`](crate::Claim::NoOrphan) forbids a key of the attempt from then on.
    pub(crate) cleaned: bool,
}

impl InFlight {
    pub(crate) fn send(&mut self, request: Request) {
        self.requests |= request.bit();
    }

    pub(crate) fn send_number(&mut self, number: u8) {
        self.number = number;
        self.send(Request::WriteBack);
    }

    pub(crate) fn number(self) -> u8 {
        self.number
    }

    pub(crate) fn remove(&mut self, request: Request) {
        self.requests &= !request.bit();
        if request == Request::WriteBack {
            self.number = 0;
        }
    }

    pub(crate) fn has(self, request: Request) -> bool {
        self.requests & request.bit() != 0
    }

    /// Returns whether a request that asks for the lock has not arrived yet.
    pub(crate) fn acquires(self) -> bool {
        self.has(Request::Set) || self.has(Request::Enter)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.requests == 0
    }
}

/// A node's answer to the last request that the client has sent to all nodes. The client ignores answers to
/// earlier requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Answer {
    /// The node has not answered, or has said no. A no only makes the client give up, which the client may
    /// do at any moment anyway.
    #[default]
    None,
    /// A yes with the node's counter is on its way. If the yes is lost, the client never counts it.
    Sent(u8),
    /// The client has counted the yes.
    Counted(u8),
    /// The connection broke. Recorded only if [`QuorumOfAll`](crate::Rule::QuorumOfAll) is broken: the
    /// client then leaves unreachable nodes out of the quorum.
    Unreachable,
}

/// The messages between one client and one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Connection {
    pub(crate) present: InFlight,
    pub(crate) former: InFlight,
    pub(crate) answer: Answer,
}

impl Connection {
    pub(crate) fn of(self, attempt: Attempt) -> InFlight {
        match attempt {
            Attempt::Present => self.present,
            Attempt::Former => self.former,
        }
    }

    pub(crate) fn of_mut(&mut self, attempt: Attempt) -> &mut InFlight {
        match attempt {
            Attempt::Present => &mut self.present,
            Attempt::Former => &mut self.former,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "SET",
            Self::Expire => "EXPIRE",
            Self::WriteBack => "write-back",
            Self::Extend => "extension",
            Self::Delete => "clean-up",
            Self::Enter => "request to share",
            Self::Downgrade => "downgrade",
        })
    }
}
