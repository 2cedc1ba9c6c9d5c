//! The machine of one fair queue: the tickets of this process, and the node that keeps the order.
//!
//! No clock, no node, no task, no lock: each event comes with its time, and the [`FairAction`]s are all that the machine does. The
//! model of `tests/model` compiles these files, too, and visits every state.
//!
//! One operation is under way at most, and the next one follows its reply. So a ticket never leaves a node before it has
//! entered, whatever connection the node uses, and replies come in order.
//!
//! * [`tickets`] has the waiters, and reads the replies about their tickets.
//! * [`tend`] goes from node to node until one of them has the tickets.
//! * This file has the state, and the choice of the next operation.

mod tend;
mod tickets;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::time::Duration;

use super::Instant;
use tend::Tending;
use tickets::FairWaiter;

/// The pause between two refreshes of the presence.
const REFRESH: Duration = Duration::from_secs(1);

/// A process that has the first ticket, and whose first waiter has not asked for the lock for this time, is not
/// refreshed: its caller may have stopped polling its future. Longer than the pauses of a waiter between two attempts.
const STALL: Duration = Duration::from_secs(2);

/// Where this process stands in a fair queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum FairPosition<E> {
    /// The ticket with this number is the first of all, and has been since this time.
    First(u64, Instant),
    /// The conductor has replied, at this time, that the first ticket belongs to another process.
    Behind(Instant),
    /// Not known at the moment: a reply of the conductor is missing.
    Unknown,
    /// Not known, and the conductor is not asked: the first waiter does not ask for the lock, so the presence is not refreshed
    /// any more. The tickets are entered again when a waiter looks at the position.
    Stalled,
    /// No node keeps the order, each for its reason.
    NoConductor(Vec<E>),
}

/// An operation on the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    /// Each ticket has a number, and has waited for this time.
    Enter(Vec<(u64, Duration)>),
    Refresh,
    Leave(Vec<u64>),
}

/// The reply of a node to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FairReply {
    /// Whether this process was present before the operation.
    pub(super) was_present: bool,
    pub(super) first: Option<First>,
}

/// The first ticket of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum First {
    /// A ticket of this process has this number.
    Own(u64),
    /// Another process has the ticket, and is present for this time.
    Other(Duration),
}

/// One step that the machine asks its driver to take.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum FairAction<E> {
    /// Executes an operation on a node. [`replied`](FairMachine::replied) follows.
    Call(usize, Operation),
    /// Looks whether a node is down. [`checked`](FairMachine::checked) follows.
    Check(usize),
    /// Subscribes to the notifications of a node. [`subscribed`](FairMachine::subscribed) follows when that is in effect.
    Subscribe(usize),
    /// Looks in the background which of so many nodes answers first. [`probed`](FairMachine::probed) follows.
    Probe(usize),
    /// Removes tickets from nodes in the background.
    Remove(Vec<usize>, Vec<u64>),
    /// Records that a node keeps the order from now on, and the failure of the node before it.
    Record(usize, Option<E>),
    /// Waits for an event, or until this time.
    Wait(Option<Instant>),
    End,
}

/// The tickets of this process in the fair queue of one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FairMachine<E> {
    /// The waiters in the order of their arrival, by the numbers of their first tickets.
    waiters: BTreeMap<u64, FairWaiter>,
    /// The tickets to remove.
    gone: Vec<u64>,
    position: FairPosition<E>,
    /// How often the position has changed.
    changes: u64,
    /// When a waiter last looked at the position.
    looked_at: Instant,
    /// The number of nodes.
    nodes: usize,
    /// The index of the node that keeps the order.
    conductor: Option<usize>,
    /// The indices of the nodes that may have tickets of this process.
    entered_at: Vec<usize>,
    /// The index of the node whose notifications this process gets.
    subscribed_at: Option<usize>,
    /// When to refresh the presence.
    due: Instant,
    /// Whether to look after the tickets before that.
    is_woken: bool,
    is_probing: bool,
    /// The first node that has answered before the conductor.
    is_back: Option<usize>,
    is_closed: bool,
    /// Why the last node that was asked does not keep the order.
    last_failure: Option<E>,
    activity: FairActivity<E>,
    /// Further steps for the driver, beside the operation.
    actions: VecDeque<FairAction<E>>,
}

/// The operation that is under way, and its purpose.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum FairActivity<E> {
    Rests,
    /// The conductor removes tickets. After the last removal, the machine has ended.
    Leaves {
        is_last: bool,
    },
    /// A node gets the missing tickets.
    Tends(Tending<E>),
    Ended,
}

impl<E: Clone> FairMachine<E> {
    /// The conductor is the first node that is up.
    pub(super) fn new(nodes: usize, conductor: usize, now: Instant) -> Self {
        Self {
            waiters: BTreeMap::new(),
            gone: Vec::new(),
            position: FairPosition::Unknown,
            changes: 0,
            looked_at: now,
            nodes,
            conductor: Some(conductor),
            entered_at: Vec::new(),
            subscribed_at: None,
            due: now + REFRESH,
            is_woken: false,
            is_probing: false,
            is_back: None,
            is_closed: false,
            last_failure: None,
            activity: FairActivity::Rests,
            actions: VecDeque::new(),
        }
    }

    /// Returns what to do next. `is_held` says whether a holder of this process may keep the first waiter from asking.
    pub(super) fn next(&mut self, now: Instant, is_held: bool) -> FairAction<E> {
        if self.actions.is_empty() && matches!(self.activity, FairActivity::Rests) {
            self.begin(now, is_held);
        }
        let activity = &self.activity;
        self.actions.pop_front().unwrap_or_else(|| match activity {
            FairActivity::Rests if self.has_ended() => FairAction::End,
            FairActivity::Rests => FairAction::Wait(Some(self.due)),
            FairActivity::Leaves { .. } | FairActivity::Tends(_) => FairAction::Wait(None),
            FairActivity::Ended => FairAction::End,
        })
    }

    /// Returns whether no waiter is left, or all waiting has ended. The next waiter gets a machine of its own.
    pub(super) fn has_ended(&self) -> bool {
        match self.activity {
            FairActivity::Rests => self.waiters.is_empty() && self.gone.is_empty(),
            FairActivity::Leaves { .. } | FairActivity::Tends(_) => false,
            FairActivity::Ended => true,
        }
    }

    /// Begins the next operation, if there is one.
    fn begin(&mut self, now: Instant, is_held: bool) {
        let is_last = self.is_closed;
        let gone = self.take_gone(is_last);
        if is_last {
            self.activity = FairActivity::Ended;
        }
        if !gone.is_empty() {
            // A node that is not the conductor may be silent.
            let (conductor, others): (Vec<_>, Vec<_>) =
                self.entered_at.iter().partition(|index| self.conductor == Some(**index));
            if !others.is_empty() {
                self.actions.push_back(FairAction::Remove(others, gone.clone()));
            }
            if let Some(conductor) = conductor.first() {
                self.activity = FairActivity::Leaves { is_last };
                self.actions.push_back(FairAction::Call(*conductor, Operation::Leave(gone)));
                return;
            }
        }
        let is_due = self.due <= now;
        if !self.has_ended() && (is_due || self.is_woken) {
            self.is_woken = false;
            if is_due {
                self.due = now + REFRESH;
            }
            if is_held || !self.has_stalled(now) {
                self.tend_tickets(is_due, now);
            }
        }
    }

    /// Records the reply to an operation.
    pub(super) fn replied(&mut self, reply: Result<FairReply, E>, now: Instant) {
        match mem::replace(&mut self.activity, FairActivity::Rests) {
            FairActivity::Leaves { is_last } => {
                // A ticket whose removal fails is removed when it is the first, or ends with the presence of this process.
                if let Ok(reply) = reply {
                    self.apply(reply, now);
                }
                if is_last {
                    self.activity = FairActivity::Ended;
                }
            }
            FairActivity::Tends(tending) => match reply {
                Ok(reply) => self.go_on(tending, reply, now),
                Err(reason) => self.failed(tending, reason, now),
            },
            other @ (FairActivity::Rests | FairActivity::Ended) => self.activity = other,
        }
    }

    /// Records that the conductor has notified this process: it may have the first ticket.
    pub(super) fn notified(&mut self, now: Instant) {
        self.due = now;
    }

    /// Ends all waiting. Returns whether the present operation is abandoned. The removal of tickets is not.
    pub(super) fn close(&mut self) -> bool {
        self.is_closed = true;
        let is_abandoned = matches!(self.activity, FairActivity::Tends(_));
        if is_abandoned {
            self.activity = FairActivity::Rests;
        }
        is_abandoned
    }
}
