//! The state of the model.

use std::time::Duration;

use smallvec::SmallVec;

use super::claim::Claim;
use super::line::{Line, LineHolder, LineSignal, LineWaiter};
use super::machine::{Machine, Step};
use super::{Instant, JOIN_WINDOW, Mode};

/// The line of the key.
pub(super) type KeyLine = Line<Who, Held, Signal, ()>;

/// A waiter in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Who {
    pub(super) caller: usize,
    pub(super) since: Instant,
    pub(super) mode: Mode,
    /// The lease of a reader that joins the lock of another one.
    pub(super) joins: Option<Duration>,
}

impl LineWaiter for Who {
    fn is(&self, other: &Self) -> bool {
        self.caller == other.caller
    }

    fn since(&self) -> Instant {
        self.since
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn is_reader(&self) -> bool {
        self.mode.is_shared()
    }

    fn joins(&self) -> Option<Duration> {
        self.joins
    }
}

/// A held lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Held {
    /// The number of the holder.
    pub(super) id: usize,
    /// The number of the caller that has acquired it, by which the nodes know it.
    pub(super) token: usize,
    pub(super) mode: Mode,
    pub(super) until: Instant,
    pub(super) hand_overs: u32,
    pub(super) lease: Duration,
    /// When the acquisition began of a lock that readers may join.
    pub(super) open_since: Option<Instant>,
}

impl LineHolder for Held {
    fn id(&self) -> usize {
        self.id
    }

    fn entry(&self) -> usize {
        self.token
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn may_be_joined(&self, lease: Duration, now: Instant) -> bool {
        lease <= self.lease
            && self.open_since.is_some_and(|begun| now < begun + JOIN_WINDOW)
            && self.until > now
    }

    fn remaining(&self, now: Instant) -> Duration {
        self.until - now
    }

    fn index(&self) -> usize {
        usize::MAX
    }

    fn set_index(&self, _index: usize) {}
}

/// A subscription to the releases of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Signal {
    /// The caller that has subscribed.
    pub(super) caller: usize,
    pub(super) mode: Mode,
    pub(super) in_effect: bool,
    /// The number of releases so far.
    pub(super) published: usize,
}

impl LineSignal for Signal {
    type Counts = usize;

    fn is(&self, other: &Self) -> bool {
        self.caller == other.caller
    }

    fn is_in_effect(&self) -> bool {
        self.in_effect
    }

    fn serves(&self, mode: Mode) -> bool {
        self.mode == mode
    }

    fn counts(&self) -> usize {
        self.published
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each of them may be true beside the others")]
pub(super) struct State {
    pub(super) now: Instant,
    pub(super) line: KeyLine,
    pub(super) callers: Vec<Caller>,
    /// The locks of this process that the nodes have, and that of the other process.
    pub(super) granted: SmallVec<[Held; 4]>,
    pub(super) are_up: bool,
    /// The present outage, since it was first noticed.
    pub(super) noticed: Option<Instant>,
    pub(super) is_closed: bool,
    pub(super) published: usize,
    /// The last subscription.
    pub(super) signal: Option<Signal>,
    pub(super) arrivals: u8,
    /// Whether the nodes have the mark of a writer of another process.
    pub(super) other_waits: bool,
    /// Whether the nodes have refused a reader since they have last granted a lock.
    pub(super) was_refused: bool,
    /// The first waiter, if it asks the nodes alone: they have refused it, or a holder was in its way.
    pub(super) alone: Option<usize>,
    /// The claims that a step has broken, and that no state shows.
    pub(super) broken: SmallVec<[Claim; 1]>,
    pub(super) left: Left,
}

/// How often each thing may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub(super) drops: u8,
    pub(super) outages: u8,
    pub(super) others: u8,
    pub(super) marks: u8,
    pub(super) agains: u8,
    pub(super) splits: u8,
    pub(super) losses: u8,
    pub(super) shutdowns: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    pub(super) who: Who,
    /// The number of callers that came before.
    pub(super) came: u8,
    /// The callers that may get the lock before it although they came later, as bits: one of them has returned to the head of
    /// the line, because the lock that was handed over to it was lost, or this one has, while the other had asked.
    pub(super) excused: u8,
    pub(super) phase: Phase,
    /// Whether the waiter was woken since its last sleep.
    pub(super) is_woken: bool,
    /// The lock that was handed over to the waiter.
    pub(super) handed_over: Option<Held>,
    /// Whether the nodes have the mark of the waiter.
    pub(super) has_mark: bool,
    /// The callers that have come later, and have got the lock before.
    pub(super) overtaken: u8,
    /// When it last asked the nodes.
    pub(super) asked: Instant,
    /// Whether it has waited for the answer to another reader since the nodes have last refused it.
    pub(super) has_followed: bool,
    /// The questions since the time has last moved, or another event.
    pub(super) questions: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Absent,
    /// Its next step.
    Steps(Machine<Held, Signal>, Step),
    Asks(Machine<Held, Signal>),
    /// Since the first time, and until the second one at most.
    Sleeps(Machine<Held, Signal>, Instant, Option<Instant>),
    /// It has the lock, and its place has not been dropped.
    Granted(Machine<Held, Signal>, Held),
    Holds(Held),
    /// It has ended its holding, and the nodes have the lock.
    Releases(Held),
    Gone,
}

impl Phase {
    /// Returns whether the caller has not got the lock yet.
    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Steps(..) | Self::Asks(_) | Self::Sleeps(..))
    }
}
