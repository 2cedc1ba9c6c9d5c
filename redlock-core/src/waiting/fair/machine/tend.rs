//! The way of the missing tickets to the node that keeps the order.

use std::mem;

use super::super::Instant;
use super::{FairAction, FairActivity, FairMachine, FairPosition, FairReply, Operation};

/// A node gets the missing tickets. It is the conductor from then on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Tending<E> {
    node: usize,
    /// Whether the node was the conductor before.
    is_current: bool,
    step: TendStep,
    cause: TendCause<E>,
}

/// The steps on one node, in their order. Each of them may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TendStep {
    /// Only in a search: a node that is down is not asked.
    Checks,
    Refreshes,
    Enters,
    Subscribes,
    /// The order may have changed before the subscription was in effect.
    Looks,
}

/// Why a node gets tickets. If it fails, that decides what follows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TendCause<E> {
    /// The node stands before this conductor, and answers again.
    IsBack { conductor: usize, is_due: bool },
    /// The node is the conductor.
    Conducts { is_due: bool },
    /// All nodes are asked in their order. Those before this one have failed. The former conductor is not asked again.
    Search { former: Option<(usize, E)>, reasons: Vec<E> },
}

impl<E: Clone> FairMachine<E> {
    /// Enters the tickets that the conductor does not have, and refreshes the presence if that is due. Moves to another node
    /// if the conductor fails, or if a node that stands before it answers.
    pub(super) fn tend_tickets(&mut self, is_due: bool, now: Instant) {
        let is_back = self.is_back.take();
        let Some(conductor) = self.conductor else { return self.search(None, Vec::new()) };
        match is_back.filter(|index| *index < conductor) {
            Some(index) => self.tend(index, TendCause::IsBack { conductor, is_due }, now),
            None => self.tend(conductor, TendCause::Conducts { is_due }, now),
        }
    }

    fn tend(&mut self, node: usize, cause: TendCause<E>, now: Instant) {
        let is_current = self.conductor == Some(node);
        let refreshes = is_current && matches!(cause, TendCause::Conducts { is_due: true });
        let tending = Tending { node, is_current, step: TendStep::Refreshes, cause };
        if refreshes {
            self.call(tending, TendStep::Refreshes, Operation::Refresh);
        } else {
            self.enter(tending, now);
        }
    }

    fn call(&mut self, tending: Tending<E>, step: TendStep, operation: Operation) {
        self.actions.push_back(FairAction::Call(tending.node, operation));
        self.activity = FairActivity::Tends(Tending { step, ..tending });
    }

    fn enter(&mut self, tending: Tending<E>, now: Instant) {
        let Tending { node, is_current, .. } = tending;
        let missing = self.take_missing(!is_current, now);
        if missing.is_empty() {
            return self.subscribe(tending);
        }
        if !self.entered_at.contains(&node) {
            self.entered_at.push(node);
        }
        self.call(tending, TendStep::Enters, Operation::Enter(missing));
    }

    /// Subscribes to the notifications of the node, unless this process gets them already, or is the first.
    fn subscribe(&mut self, tending: Tending<E>) {
        let node = tending.node;
        if self.is_first() || self.waiters.is_empty() || self.subscribed_at == Some(node) {
            return self.tended(&tending);
        }
        self.subscribed_at = Some(node);
        self.actions.push_back(FairAction::Subscribe(node));
        self.activity = FairActivity::Tends(Tending { step: TendStep::Subscribes, ..tending });
    }

    /// Records that the subscription is in effect, or that it takes too long.
    pub(in super::super) fn subscribed(&mut self) {
        if let FairActivity::Tends(tending) = mem::replace(&mut self.activity, FairActivity::Rests)
        {
            self.call(tending, TendStep::Looks, Operation::Refresh);
        }
    }

    /// Records the reply of a node that gets tickets.
    pub(super) fn go_on(&mut self, tending: Tending<E>, reply: FairReply, now: Instant) {
        let Tending { node, is_current, step, .. } = tending;
        match step {
            TendStep::Enters => {
                self.record_entered(is_current && !reply.was_present);
                self.move_to(node);
                self.apply(reply, now);
                // The waiters that have entered may be behind those of other processes now.
                self.changes += 1;
                if self.has_changed() {
                    // The tickets that have come or gone meanwhile go first. Their reply names the first ticket, too.
                    self.is_woken = true;
                    self.tended(&tending);
                } else {
                    self.subscribe(tending);
                }
            }
            TendStep::Checks | TendStep::Refreshes | TendStep::Subscribes | TendStep::Looks => {
                if reply.was_present {
                    self.apply(reply, now);
                } else {
                    // The node has forgotten this process.
                    self.forget_entries();
                    self.is_woken = true;
                }
                if step == TendStep::Looks {
                    self.tended(&tending);
                } else {
                    self.enter(tending, now);
                }
            }
        }
    }

    /// Makes a node the conductor.
    fn move_to(&mut self, node: usize) {
        self.conductor = Some(node);
        self.actions.push_back(FairAction::Record(node, self.last_failure.take()));
        let mut former = mem::replace(&mut self.entered_at, vec![node]);
        former.retain(|former| *former != node);
        if !former.is_empty() {
            let numbers = self.numbers();
            self.actions.push_back(FairAction::Remove(former, numbers));
        }
    }

    fn tended(&mut self, tending: &Tending<E>) {
        self.activity = FairActivity::Rests;
        if matches!(tending.cause, TendCause::Conducts { is_due: true })
            && tending.node > 0
            && !mem::replace(&mut self.is_probing, true)
        {
            self.actions.push_back(FairAction::Probe(tending.node));
        }
    }

    /// Records the index of the first node before the conductor that answers, if there is one.
    pub(in super::super) fn probed(&mut self, index: Option<usize>) {
        self.is_probing = false;
        self.is_back = index;
        self.is_woken = true;
    }

    /// Records that a node does not keep the order.
    pub(super) fn failed(&mut self, tending: Tending<E>, reason: E, now: Instant) {
        match tending.cause {
            TendCause::IsBack { conductor, is_due } => {
                self.tend(conductor, TendCause::Conducts { is_due }, now);
            }
            TendCause::Conducts { .. } => {
                let former = self.conductor.map(|former| (former, reason));
                self.search(former, Vec::new());
            }
            TendCause::Search { former, mut reasons } => {
                self.last_failure = Some(reason.clone());
                reasons.push(reason);
                self.search(former, reasons);
            }
        }
    }

    /// Asks the next node of a search.
    fn search(&mut self, former: Option<(usize, E)>, mut reasons: Vec<E>) {
        let node = reasons.len();
        if node == self.nodes {
            self.conductor = None;
            self.position = FairPosition::NoConductor(reasons);
            self.changes += 1;
            self.activity = FairActivity::Rests;
            return;
        }
        match former {
            Some((former, reason)) if former == node => {
                self.last_failure = Some(reason.clone());
                reasons.push(reason);
                self.search(None, reasons);
            }
            former => {
                self.actions.push_back(FairAction::Check(node));
                let cause = TendCause::Search { former, reasons };
                let tending = Tending { node, is_current: false, step: TendStep::Checks, cause };
                self.activity = FairActivity::Tends(tending);
            }
        }
    }

    /// Records whether a node is down, and why.
    pub(in super::super) fn checked(&mut self, is_down: Option<E>, now: Instant) {
        let FairActivity::Tends(tending) = mem::replace(&mut self.activity, FairActivity::Rests)
        else {
            return;
        };
        match is_down {
            Some(reason) => self.failed(tending, reason, now),
            None => self.tend(tending.node, tending.cause, now),
        }
    }
}
