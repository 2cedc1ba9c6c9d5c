//! The words of the machine: the events of a waiter, its steps, and its pauses.

use std::time::Duration;

use super::super::line::LineSignal;
use super::super::{Instant, Mode};

/// The conditions of a wait, which do not change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) mode: Mode,
    pub(crate) has_several_keys: bool,
    /// Whether the waiter waits for ever, also while no quorum of nodes answers.
    pub(crate) is_endless: bool,
    /// When the caller began to wait.
    pub(crate) since: Instant,
    /// The end of the `wait_time`.
    pub(crate) deadline: Option<Instant>,
    /// The number of nodes.
    pub(crate) nodes: usize,
    /// Whether the waiter is a reader to which the nodes give a turn.
    pub(crate) has_turns: bool,
    pub(crate) node_timeout: Duration,
    /// How long a waiter keeps its place while no quorum of nodes answers.
    pub(crate) outage_grace: Duration,
}

/// A question to the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Question<G: LineSignal> {
    pub(super) begun: Instant,
    /// The signal that was in effect, and the releases that had been published before.
    pub(crate) heard: Option<(G, G::Counts)>,
}

/// Why a waiter sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Pause<H, G: LineSignal> {
    /// It stands behind another waiter of this process.
    Queue,
    /// Its process does not have the first ticket of the fair queue.
    Fair,
    /// This process holds the lock.
    Holder(H),
    /// Another reader of this process asks the nodes. The waiter may join its lock.
    Reader,
    /// Another process holds the lock. A published release ends the sleep.
    Release(Question<G>),
    /// Several callers got votes, or may have got them. A published release does not end the sleep: it wakes all of them.
    Split(Question<G>),
    /// Other processes have their turn, or the nodes name one key and then another.
    Yield,
    /// Its subscription to the releases is not in effect yet.
    Subscribe,
    /// No quorum of nodes answers. The timer ends the wait; the return of a quorum ends the pause.
    Outage {
        /// The time after which the return of a quorum counts.
        pause: Duration,
        /// Whether the nodes try to connect first: a server that is back is used at once.
        reconnects: bool,
    },
}

impl<H, G: LineSignal> Pause<H, G> {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Queue => "Queue",
            Self::Fair => "Fair",
            Self::Holder(_) => "Holder",
            Self::Reader => "Reader",
            Self::Release(_) => "Release",
            Self::Split(_) => "Split",
            Self::Yield => "Yield",
            Self::Subscribe => "Subscribe",
            Self::Outage { .. } => "Outage",
        }
    }
}

/// The event that has ended a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Wake {
    /// Another caller of this process: it has handed the lock over or called the waiter, has got, shared or released the lock,
    /// or has reached a quorum. Or the manager was shut down.
    Notified,
    Release,
    Timer,
    HolderEnded,
    Subscribed,
    QuorumIsBack,
    FairQueue,
    /// No thread drives the runtime of the manager, so no node is asked.
    HomeIsIdle,
}

/// The next step of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// It looks at its line again.
    Look,
    /// It asks the nodes.
    Ask,
    /// It takes the lock that another caller of this process has handed over.
    Take,
    /// It sleeps, until this time at most.
    Sleep(Option<Instant>),
    /// It leaves its line, and joins that of the key at this index. It gives up if that line is full.
    Join(usize, AfterJoin),
    /// It gives up.
    Fail(Failure),
}

/// The next step of a waiter that has joined a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AfterJoin {
    Look,
    /// The nodes have answered it.
    EndOutage,
    /// It evaluates the last refusal once more.
    EvaluateRefusal,
}

/// Why a waiter gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Failure {
    /// The last refusal.
    Refused,
    /// Its `wait_time` is over while it does not wait for the nodes: a holder or a waiter of its process, or the fair queue, is
    /// before it.
    TimedOut,
    /// No node keeps the fair order. The driver passes that on as a [refusal](WaitRefusal::NoQuorum).
    NoConductor,
}

/// The answer of the nodes to a waiter that has not got the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WaitRefusal {
    /// No quorum has answered.
    NoQuorum {
        /// Whether the reason may pass while the caller waits.
        is_transient: bool,
    },
    /// Another holder has the lock.
    Held {
        /// The index of its key.
        key: usize,
        remaining: Option<Duration>,
        is_split: bool,
    },
    /// A holder of this process relies on the lock, which the nodes have forgotten. The waiter has given it back.
    HeldHere { key: usize, remaining: Duration },
    /// The reason does not end while the caller waits: a foreign key, or the end of the manager. It is no outage.
    Final,
}

/// The facts beside its line that a waiter sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sight {
    /// Whether a lock was handed over to the waiter.
    pub(crate) was_handed_over: bool,
    /// Whether the manager was shut down.
    pub(crate) is_closed: bool,
    /// The index of the first key that a holder of this process keeps from the waiter.
    pub(crate) blocked_key: Option<usize>,
}

/// The place of the process of a fair waiter in the fair queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fair {
    First,
    /// The conductor has replied, at this time, that the first ticket belongs to another process.
    Behind(Instant),
    Unknown,
    NoConductor,
}
