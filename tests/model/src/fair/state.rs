//! The state of the model.

use smallvec::SmallVec;

use super::Instant;
use super::claim::Claim;
use super::machine::{FairMachine, FairPosition, FairReply, Operation};
use super::node::Node;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: Instant,
    pub(super) processes: Vec<Process>,
    pub(super) callers: Vec<Caller>,
    pub(super) nodes: Vec<Node>,
    pub(super) holder: Option<Holder>,
    /// Since when the lock is free, all nodes are up, and somebody waits for it.
    pub(super) free_since: Option<Instant>,
    /// The tickets with which a caller has got the lock, each with its process.
    pub(super) used: SmallVec<[(usize, u64); 4]>,
    /// The claims that a step has broken, and that no state shows.
    pub(super) broken: SmallVec<[Claim; 1]>,
    pub(super) left: Left,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// A caller that is not fair, in another process.
    Other,
    Caller(usize),
}

/// How often each thing may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub(super) drops: u8,
    pub(super) outages: u8,
    pub(super) losses: u8,
    pub(super) timeouts: u8,
    pub(super) stalls: u8,
    pub(super) shutdowns: u8,
}

/// A process with its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Process {
    /// Present as long as the process has waiters.
    pub(super) machine: Option<FairMachine<()>>,
    /// When the machine goes on by itself.
    pub(super) until: Option<Instant>,
    /// The operations on their way, in the order in which they were sent.
    pub(super) sent: Vec<Sent>,
    /// The reply on its way to the machine.
    pub(super) reply: Option<Result<FairReply, ()>>,
    pub(super) subscribed_at: Option<usize>,
    /// Whether the subscription is not in effect yet.
    pub(super) subscribes: bool,
    /// Whether a notification is on its way.
    pub(super) is_notified: bool,
    /// The number of nodes that a probe asks.
    pub(super) probes: Option<usize>,
    pub(super) is_closed: bool,
    /// The tickets that the machine has removed from its conductor.
    pub(super) removed: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) node: usize,
    pub(super) operation: Operation,
    /// Whether the machine waits for the reply.
    pub(super) is_awaited: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    pub(super) process: usize,
    pub(super) phase: Phase,
    /// The callers whose tickets were on the node when this one came, as bits.
    pub(super) behind: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Absent,
    /// It looks at the position next, if it is the first of its process.
    Looks,
    /// Its process does not have the first ticket, as far as it knows.
    Fair,
    /// The nodes have refused it. It looks again at this time.
    Refused(Instant),
    /// Nobody polls its future.
    Stalled,
    Holds,
    Gone,
}

impl Phase {
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Looks | Self::Fair | Self::Refused(_) | Self::Stalled)
    }
}

impl State {
    /// Returns the first waiter of a process.
    pub(super) fn first_of(&self, process: usize) -> Option<usize> {
        let is_it = |caller: &Caller| caller.process == process && caller.phase.waits();
        self.callers.iter().position(is_it)
    }

    /// Returns whether the position has changed since a caller looked at it.
    pub(super) fn is_told(&self, caller: usize) -> bool {
        let machine = self.processes[self.callers[caller].process].machine.as_ref();
        machine.is_some_and(|machine| machine.changes() > machine.seen(number(caller)))
    }

    /// Returns what a caller would see if it looked at the position now.
    pub(super) fn position(&self, caller: usize) -> Option<FairPosition<()>> {
        let machine = self.processes[self.callers[caller].process].machine.as_ref()?;
        Some(machine.clone().look(number(caller), self.now))
    }
}

/// Returns the number of the first ticket of a caller.
pub(super) fn number(caller: usize) -> u64 {
    u64::try_from(caller).unwrap_or_default()
}
