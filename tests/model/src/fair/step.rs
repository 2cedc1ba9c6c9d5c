//! The events of one step.

use std::fmt;
use std::time::Duration;

use super::Instant;
use super::claim::Claim;
use super::machine::{FairAction, FairMachine, FairPosition, Operation};
use super::node::Node;
use super::state::{Holder, Phase, Sent, State, number};
use super::world::{Rule, World};

/// How long a refused waiter sleeps at most.
const POLL: Duration = Duration::from_secs(1);

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// A caller comes, and takes a ticket.
    Come(usize),
    /// The first waiter of a process looks at its position, and asks for the lock if its process is the first.
    Look(usize),
    /// A caller releases its lock.
    Release(usize),
    /// The holder that is not fair releases the lock.
    OtherReleases,
    /// The future of a caller is dropped.
    Drop(usize),
    /// Nobody polls the future of a caller any more.
    Stall(usize),
    /// The future is polled again.
    GoOn(usize),
    /// An operation of a process arrives.
    Arrive(usize, usize),
    /// The reply to a process arrives.
    Reply(usize),
    /// The reply to a process takes too long. The operation may arrive yet.
    TimeOut(usize),
    /// The subscription of a process is in effect.
    Subscribed(usize),
    /// A notification arrives.
    Notify(usize),
    /// A notification gets lost.
    LoseNotification(usize),
    /// A probe ends.
    Probed(usize),
    /// A node fails.
    Fail(usize),
    /// A node is back.
    Recover(usize),
    /// A node forgets its queue.
    Forget(usize),
    /// A process is shut down.
    Close(usize),
    /// The next timer fires.
    Tick,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl State {
    pub(super) fn come(&mut self, caller: usize) {
        // Two callers never come at the same time.
        self.pass(self.now + Duration::from_millis(1));
        let (process, now) = (self.callers[caller].process, self.now);
        let has_ticket = |other: usize| {
            let ticket = (self.callers[other].process, number(other));
            let mut tickets = self.nodes.iter().flat_map(|node| &node.tickets);
            tickets.any(|(_, process, number)| (*process, *number) == ticket)
        };
        let behind = (0..self.callers.len()).filter(|other| has_ticket(*other));
        self.callers[caller].behind = behind.map(|other| 1 << other).sum();
        self.callers[caller].phase = Phase::Looks;
        let first_up = self.nodes.iter().position(|node| !node.is_down).unwrap_or_default();
        let nodes = self.nodes.len();
        let machine = self.processes[process]
            .machine
            .get_or_insert_with(|| FairMachine::new(nodes, first_up, now));
        machine.add(number(caller), now);
        self.drive(process);
    }

    /// Does what the machine of a process says until it waits. As `FairDriver::drive`.
    pub(super) fn drive(&mut self, process: usize) {
        let is_held = |holder| match holder {
            Some(Holder::Caller(caller)) => self.callers[caller].process == process,
            Some(Holder::Other) | None => false,
        };
        let (is_held, now) = (is_held(self.holder), self.now);
        loop {
            let one = &mut self.processes[process];
            let Some(machine) = &mut one.machine else { return };
            match machine.next(now, is_held) {
                FairAction::Call(node, operation) => {
                    if one.reply.is_some() || one.sent.iter().any(|sent| sent.is_awaited) {
                        self.broken.push(Claim::OneOperation);
                    }
                    match &operation {
                        Operation::Leave(numbers) => one.removed.extend(numbers),
                        Operation::Enter(tickets) => {
                            if tickets.iter().any(|(number, _)| one.removed.contains(number)) {
                                self.broken.push(Claim::NoTicketTwice);
                            }
                        }
                        Operation::Refresh => {}
                    }
                    one.sent.push(Sent { node, operation, is_awaited: true });
                }
                FairAction::Check(node) => {
                    machine.checked(self.nodes[node].is_down.then_some(()), now);
                }
                FairAction::Subscribe(node) => {
                    (one.subscribed_at, one.subscribes) = (Some(node), true);
                }
                FairAction::Probe(nodes) => one.probes = Some(nodes),
                FairAction::Remove(nodes, numbers) => {
                    one.sent.extend(nodes.into_iter().map(|node| {
                        let operation = Operation::Leave(numbers.clone());
                        Sent { node, operation, is_awaited: false }
                    }));
                }
                FairAction::Record(..) => {}
                FairAction::Wait(until) => {
                    one.until = until;
                    return;
                }
                FairAction::End => {
                    let is_closed = one.is_closed;
                    (one.machine, one.until, one.subscribed_at) = (None, None, None);
                    (one.subscribes, one.is_notified, one.probes) = (false, false, None);
                    if is_closed {
                        let own = self.callers.iter_mut().filter(|one| one.process == process);
                        own.filter(|one| one.phase.waits()).for_each(|one| one.phase = Phase::Gone);
                    }
                }
            }
        }
    }

    /// The first waiter of a process looks at its position. As `Machine::look` and `Machine::refuse` of a waiter.
    pub(super) fn look(&mut self, caller: usize, world: &World) {
        let (process, now) = (self.callers[caller].process, self.now);
        let Some(machine) = &mut self.processes[process].machine else { return };
        let position = machine.look(number(caller), now);
        self.callers[caller].phase = match position {
            FairPosition::First(..) if self.holder.is_none() => {
                return self.acquire(caller, world);
            }
            FairPosition::First(..) => Phase::Refused(now + POLL),
            _ => Phase::Fair,
        };
        self.drive(process);
    }

    fn acquire(&mut self, caller: usize, world: &World) {
        let process = self.callers[caller].process;
        if let Some(FairPosition::First(first, _)) = self.position(caller) {
            if self.used.contains(&(process, first)) {
                self.broken.push(Claim::NoTicketTwice);
            }
            self.used.push((process, first));
        }
        if world.keeps(Rule::Exchange)
            && let Some(machine) = &mut self.processes[process].machine
        {
            machine.take_first(number(caller));
        }
        let before = self.callers[caller].behind;
        let is_overtaken =
            |other: usize| before & (1 << other) != 0 && self.callers[other].phase.waits();
        if (0..self.callers.len()).any(is_overtaken) {
            self.broken.push(Claim::OrderIsKept);
        }
        self.holder = Some(Holder::Caller(caller));
        self.callers[caller].phase = Phase::Holds;
        self.leave(caller, world);
    }

    /// Drops the place of a caller in the queue. The next waiter of its process looks.
    pub(super) fn leave(&mut self, caller: usize, world: &World) {
        let process = self.callers[caller].process;
        if !world.keeps(Rule::LeaveAfterReply) {
            let operation = Operation::Leave(vec![number(caller)]);
            let node = self.processes[process].sent.last().map_or(0, |sent| sent.node);
            self.processes[process].sent.push(Sent { node, operation, is_awaited: false });
        }
        if world.keeps(Rule::Leave)
            && let Some(machine) = &mut self.processes[process].machine
        {
            machine.remove(number(caller));
        }
        self.drive(process);
        if let Some(next) = self.first_of(process)
            && self.callers[next].phase != Phase::Stalled
        {
            self.callers[next].phase = Phase::Looks;
        }
    }

    /// Releases the lock, or hands it over to the next waiter of the process, as `hand_over`.
    pub(super) fn release(&mut self, caller: usize, world: &World) {
        self.callers[caller].phase = Phase::Gone;
        self.holder = None;
        let process = self.callers[caller].process;
        let is_first = self.processes[process].machine.as_ref().is_some_and(FairMachine::is_first);
        if let Some(next) = self.first_of(process).filter(|_| is_first)
            && matches!(self.callers[next].phase, Phase::Looks | Phase::Refused(_))
        {
            return self.acquire(next, world);
        }
        self.publish();
    }

    /// Wakes the waiters that wait for a release.
    pub(super) fn publish(&mut self) {
        self.holder = None;
        let refused = self.callers.iter_mut();
        let refused = refused.filter(|caller| matches!(caller.phase, Phase::Refused(_)));
        refused.for_each(|caller| caller.phase = Phase::Looks);
    }

    pub(super) fn arrive(&mut self, process: usize, index: usize) {
        let Sent { node, operation, is_awaited } = self.processes[process].sent.remove(index);
        if let Operation::Leave(left) = &operation {
            let enters = |sent: &Sent| match &sent.operation {
                Operation::Enter(tickets) => {
                    tickets.iter().any(|(number, _)| left.contains(number))
                }
                _ => false,
            };
            let earlier = &self.processes[process].sent[..index];
            if earlier.iter().any(|sent| sent.node == node && enters(sent)) {
                self.broken.push(Claim::NoLeaveOvertakes);
            }
        }
        let present = &mut self.nodes[node];
        let reply = if present.is_down {
            Err(())
        } else {
            let (reply, notified) = present.execute(process, &operation, self.now);
            for other in notified {
                let other = &mut self.processes[other];
                other.is_notified |= other.subscribed_at == Some(node);
            }
            Ok(reply)
        };
        if is_awaited {
            self.processes[process].reply = Some(reply);
        } else {
            // However late it is.
            self.free_since = None;
        }
    }

    pub(super) fn reply(&mut self, process: usize, is_lost: bool) {
        let now = self.now;
        let one = &mut self.processes[process];
        let reply = one.reply.take();
        one.sent.iter_mut().for_each(|sent| sent.is_awaited = false);
        let reply = reply.filter(|_| !is_lost).unwrap_or(Err(()));
        if let Some(machine) = &mut one.machine {
            machine.replied(reply, now);
        }
        self.drive(process);
    }

    pub(super) fn subscribed(&mut self, process: usize) {
        self.processes[process].subscribes = false;
        if let Some(machine) = &mut self.processes[process].machine {
            machine.subscribed();
        }
        self.drive(process);
    }

    pub(super) fn notify(&mut self, process: usize) {
        let now = self.now;
        self.processes[process].is_notified = false;
        if let Some(machine) = &mut self.processes[process].machine {
            machine.notified(now);
        }
        self.drive(process);
    }

    pub(super) fn probed(&mut self, process: usize) {
        let one = &mut self.processes[process];
        let Some(nodes) = one.probes.take() else { return };
        let first_up = self.nodes[..nodes].iter().position(|node| !node.is_down);
        if let Some(machine) = &mut one.machine {
            machine.probed(first_up);
        }
        self.drive(process);
    }

    pub(super) fn close(&mut self, process: usize) {
        let one = &mut self.processes[process];
        one.is_closed = true;
        if let Some(machine) = &mut one.machine
            && machine.close()
        {
            one.sent.iter_mut().for_each(|sent| sent.is_awaited = false);
            (one.reply, one.subscribes) = (None, false);
        }
        self.drive(process);
    }

    /// Returns when the next timer fires.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let refused = self.callers.iter().filter_map(|caller| match caller.phase {
            Phase::Refused(until) => Some(until),
            _ => None,
        });
        let machines = self.processes.iter().filter_map(|process| process.until);
        let present = self.nodes.iter().flat_map(|node| &node.present_until);
        let timers = refused.chain(machines).chain(present.map(|(_, until)| *until));
        timers.filter(|timer| *timer > self.now).min()
    }

    /// Lets the time pass until then.
    pub(super) fn pass(&mut self, now: Instant) {
        self.now = now;
        self.nodes.iter_mut().for_each(|node: &mut Node| node.expire(now));
        for process in 0..self.processes.len() {
            if self.processes[process].until.is_some_and(|until| until <= now) {
                self.drive(process);
            }
        }
        for caller in &mut self.callers {
            if matches!(caller.phase, Phase::Refused(until) if until <= now) {
                caller.phase = Phase::Looks;
            }
        }
    }

    /// Records since when the lock could be taken.
    pub(super) fn record_free(&mut self) {
        let waits = |phase: Phase| phase.waits() && phase != Phase::Stalled;
        let is_free = self.holder.is_none()
            && self.nodes.iter().all(|node| !node.is_down)
            && self.callers.iter().any(|caller| waits(caller.phase));
        self.free_since = if is_free { self.free_since.or(Some(self.now)) } else { None };
    }
}
