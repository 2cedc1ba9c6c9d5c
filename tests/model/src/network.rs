//! The way between one client and one node.

use std::fmt;

/// What a client asks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// `SET key token NX PX lease`.
    Set,
    /// `EXPIRE key lease`: only where the lease does not come with the key.
    Expire,
    /// Raise your counter to this number, if the key is still mine.
    WriteBack,
    /// Begin the lease anew, if the key is still mine.
    Extend,
    /// The clean-up: delete the key, if it is still mine.
    Delete,
}

impl Request {
    pub(crate) const ALL: [Self; 5] =
        [Self::Set, Self::Expire, Self::WriteBack, Self::Extend, Self::Delete];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Which of a client's attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attempt {
    /// The one that goes on, or the last.
    Present,
    /// The one before it, of which something is still there.
    Former,
}

/// One request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    pub(crate) client: usize,
    pub(crate) node: usize,
    pub(crate) attempt: Attempt,
    pub(crate) request: Request,
}

/// The requests of one attempt to one node that are under way.
///
/// A set, not a queue: each may arrive at any time from now on, in any order, or be lost. The one
/// order that the library relies on is a rule of its own
/// ([`CleanUpBehindItsSet`](crate::Rule::CleanUpBehindItsSet)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UnderWay {
    requests: u8,
    /// The number that [`Request::WriteBack`] carries.
    number: u8,
    /// Whether the node has executed the clean-up: from then on nothing of the attempt may be
    /// there. Not a message but what the property asks about.
    pub(crate) cleaned: bool,
}

impl UnderWay {
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

    pub(crate) fn is_nothing(self) -> bool {
        self.requests == 0
    }
}

/// The answer to the question that a client has put to all nodes. Each question has one; those to an
/// older question are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Answer {
    /// There is none: not yet, or the node said no. A no only makes the client give up, which it
    /// may do at any moment anyway.
    #[default]
    None,
    /// Yes, with the node's counter; on its way. One that is lost is one that never arrives.
    Sent(u8),
    /// Yes, and the client has counted it.
    Counted(u8),
    /// The connection broke. Noted only for the twin that forgets about such nodes.
    Unreachable,
}

/// All that is between one client and one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Connection {
    pub(crate) present: UnderWay,
    pub(crate) former: UnderWay,
    pub(crate) answer: Answer,
}

impl Connection {
    pub(crate) fn of(self, attempt: Attempt) -> UnderWay {
        match attempt {
            Attempt::Present => self.present,
            Attempt::Former => self.former,
        }
    }

    pub(crate) fn of_mut(&mut self, attempt: Attempt) -> &mut UnderWay {
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
        })
    }
}
