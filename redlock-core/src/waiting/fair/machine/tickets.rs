//! The tickets of this process in the fair queue of one lock.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::prompt_task::PromptTask;
use crate::error::Votes;
use crate::node::{ProcessId, QueueReply, Ticket};

/// Added to the rest of a presence, so that it is over when the store is asked.
const AFTER_PRESENCE: Duration = Duration::from_millis(2);

/// The tickets of this process in the fair queue of one lock. The waiters and the attendant share them.
#[derive(Debug)]
pub(crate) struct Tickets {
    pub(super) state: Mutex<State>,
    /// Notifies the waiters that their position has changed. Sent by the attendant.
    pub(super) changed: watch::Sender<()>,
    /// Wakes the attendant.
    pub(super) wake: Notify,
    /// Present from the first waiter that has entered the queue.
    pub(super) attendant: OnceLock<PromptTask>,
}

#[derive(Debug)]
pub(super) struct State {
    /// The waiters in the order of their arrival, by the numbers of their first tickets.
    pub(super) waiters: BTreeMap<u64, FairWaiter>,
    /// The tickets that the attendant has to remove.
    pub(super) gone: Vec<u64>,
    pub(super) position: FairPosition,
    /// When a waiter last looked at the position.
    pub(super) looked_at: Instant,
}

/// A waiter of this process.
#[derive(Debug)]
pub(super) struct FairWaiter {
    pub(super) arrived: Instant,
    /// A waiter of this process that gets the lock may exchange its ticket for this one.
    pub(super) ticket: OwnTicket,
}

/// A ticket of this process, and whether it is in a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnTicket {
    pub(super) number: u64,
    /// Whether the ticket may be in the queue of a node.
    pub(super) was_sent: bool,
    /// Whether the ticket is in the queue of the conductor.
    pub(super) is_entered: bool,
}

/// Where this process stands in a fair queue.
#[derive(Debug, Clone)]
pub(crate) enum FairPosition {
    /// The ticket with this number is the first of all, and has been since this time.
    First(u64, Instant),
    /// The conductor has replied, at this time, that the first ticket belongs to another process.
    Behind(Instant),
    /// Not known at the moment: the attendant waits for a reply of the conductor.
    Unknown,
    /// Not known, and the attendant does not ask: the first waiter does not ask for the lock, so the attendant has stopped
    /// refreshing the presence. It enters the tickets again when a waiter looks at the position.
    Stalled,
    /// No node keeps the order, for these reasons.
    NoConductor(Votes),
}

impl Tickets {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                waiters: BTreeMap::new(),
                gone: Vec::new(),
                position: FairPosition::Unknown,
                looked_at: Instant::now(),
            }),
            changed: watch::Sender::new(()),
            wake: Notify::new(),
            attendant: OnceLock::new(),
        })
    }

    /// Returns whether the first ticket of all is a ticket of this process.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self.state.lock().position, FairPosition::First(..))
    }

    pub(super) fn has_waiters(&self) -> bool {
        !self.state.lock().waiters.is_empty()
    }

    /// Returns whether there is neither a waiter nor a ticket to remove.
    pub(super) fn are_unused(&self) -> bool {
        let state = self.state.lock();
        state.waiters.is_empty() && state.gone.is_empty()
    }

    /// Returns the tickets to remove from the conductor. With `all`, those of all waiters too.
    pub(super) fn take_gone(&self, all: bool) -> Vec<u64> {
        let mut state = self.state.lock();
        let mut gone = std::mem::take(&mut state.gone);
        if all {
            let sent = state.tickets().filter(|ticket| ticket.was_sent);
            gone.extend(sent.map(|ticket| {
                ticket.was_sent = false;
                ticket.number
            }));
        }
        gone
    }

    /// Returns the numbers of all tickets that a former conductor may have.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        let gone = state.gone.clone();
        state.tickets().map(|ticket| ticket.number).chain(gone).collect()
    }

    /// Returns the tickets to enter on the conductor, or, with `all`, on another node.
    pub(super) fn take_missing(&self, all: bool) -> Vec<Ticket> {
        let mut state = self.state.lock();
        let waiters = state.waiters.values_mut();
        let missing = waiters.filter(|waiter| all || !waiter.ticket.is_entered);
        let ticket = |waiter: &mut FairWaiter| {
            waiter.ticket.was_sent = true;
            Ticket::new(waiter.ticket.number, waiter.arrived.elapsed())
        };
        missing.map(ticket).collect()
    }

    /// Records that the missing tickets, which were sent, are in the queue of the conductor. If it `has_forgotten` this
    /// process before, the other tickets are not. Returns whether tickets are missing.
    pub(super) fn record_entered(&self, has_forgotten: bool) -> bool {
        let mut state = self.state.lock();
        if has_forgotten {
            state.position = FairPosition::Unknown;
        }
        for ticket in state.tickets() {
            ticket.is_entered = if ticket.is_entered { !has_forgotten } else { ticket.was_sent };
        }
        state.tickets().any(|ticket| !ticket.is_entered)
    }

    /// Records that the conductor has no tickets of this process, so that the attendant enters them again.
    pub(super) fn forget_entries(&self) {
        self.state.lock().forget_entries();
        self.wake.notify_one();
    }

    /// Evaluates a reply of the conductor. Returns when to ask it again at the latest, if that is known.
    pub(super) fn apply(&self, process: ProcessId, reply: &QueueReply) -> Option<Instant> {
        let mut state = self.state.lock();
        if matches!(state.position, FairPosition::Stalled) {
            // The places of this process may be lost when a waiter looks again.
            return None;
        }
        let now = Instant::now();
        let mut due = None;
        let position = match reply.first {
            Some(first) if first.process == process => {
                if state.tickets().any(|ticket| ticket.number == first.number) {
                    let since = match state.position {
                        FairPosition::First(_, since) => since,
                        _ => now,
                    };
                    FairPosition::First(first.number, since)
                } else {
                    // Its removal was lost, or is next.
                    if !state.gone.contains(&first.number) {
                        state.gone.push(first.number);
                    }
                    self.wake.notify_one();
                    FairPosition::Unknown
                }
            }
            Some(first) => {
                due = Some(now + first.present_for + AFTER_PRESENCE);
                FairPosition::Behind(now)
            }
            None => {
                state.forget_entries();
                FairPosition::Unknown
            }
        };
        let is_news = match (&state.position, &position) {
            (FairPosition::Behind(_), FairPosition::Behind(_)) => false,
            (FairPosition::First(former, _), FairPosition::First(first, _)) => former != first,
            _ => true,
        };
        if is_news && matches!(position, FairPosition::First(..)) {
            state.looked_at = now;
        }
        state.position = position;
        if is_news {
            self.changed.send_replace(());
        }
        due
    }

    /// Records that no node keeps the order.
    pub(super) fn record_failed_search(&self, votes: Votes) {
        let mut state = self.state.lock();
        state.position = FairPosition::NoConductor(votes);
        self.changed.send_replace(());
    }

    /// Returns whether a waiter has the first ticket, and none has looked at the position for this time. The process then
    /// loses its places when the presence is over. It enters them again when a waiter looks again.
    pub(super) fn has_stalled(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if let FairPosition::First(_, since) = state.position
            && since.max(state.looked_at).elapsed() >= time
        {
            state.forget_entries();
            state.position = FairPosition::Stalled;
        }
        matches!(state.position, FairPosition::Stalled)
    }
}

impl State {
    fn tickets(&mut self) -> impl Iterator<Item = &mut OwnTicket> {
        self.waiters.values_mut().map(|waiter| &mut waiter.ticket)
    }

    fn forget_entries(&mut self) {
        self.position = FairPosition::Unknown;
        self.tickets().for_each(|ticket| ticket.is_entered = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;
    use crate::lock::{Dialect, LockSpec, Mode};
    use crate::node::FirstTicket;
    use crate::waiting::FairWait;
    use crate::waiting::tests::two_processes;

    /// Another waiter of the process leaves meanwhile, and the conductor names the first ticket of the process once more.
    #[tokio::test(start_paused = true)]
    async fn a_process_that_has_stalled_is_not_first_when_it_looks_again() {
        const STALL: Duration = Duration::from_secs(2);
        let (locks, ..) = two_processes(1);
        let spec = LockSpec::new(LockKey::new("a").unwrap(), Mode::Exclusive, Dialect::Plain);
        let fair = locks.fair_queues();
        let mut wait = FairWait::new(fair, &spec);
        let tickets = Arc::clone(&wait.tickets);
        tickets.take_missing(false);
        tickets.record_entered(false);
        let own = FirstTicket { process: fair.process, number: 0, present_for: STALL };
        let reply = QueueReply::new(Duration::ZERO, true).with_first(own);
        tickets.apply(fair.process, &reply);
        tokio::time::sleep(STALL).await;
        assert!(tickets.has_stalled(STALL));

        tickets.apply(fair.process, &reply);
        assert!(tickets.has_stalled(STALL));
        assert!(!tickets.is_first());
        assert!(matches!(wait.position(), FairPosition::Unknown));
        assert!(!tickets.has_stalled(STALL), "it enters its tickets again");
        assert_eq!(tickets.take_missing(false).len(), 1);
        tickets.record_entered(false);
        tickets.apply(fair.process, &reply);
        assert!(matches!(wait.position(), FairPosition::First(..)));
    }

    /// The simulation found a ticket that stayed for 3 s: a waiter whose own ticket was not sent yet had it.
    #[tokio::test]
    async fn a_ticket_is_removed_whoever_has_it() {
        let (locks, ..) = two_processes(1);
        let spec = LockSpec::new(LockKey::new("a").unwrap(), Mode::Exclusive, Dialect::Plain);
        let fair = locks.fair_queues();
        let first = FairWait::new(fair, &spec);
        let tickets = Arc::clone(&first.tickets);
        assert_eq!(tickets.take_missing(false).len(), 1);
        assert!(!tickets.record_entered(false));
        let second = FairWait::new(fair, &spec);
        let present_for = Duration::from_secs(3);
        let own = FirstTicket { process: fair.process, number: 0, present_for };
        tickets.apply(fair.process, &QueueReply::new(Duration::ZERO, true).with_first(own));
        assert!(tickets.is_first());

        second.take_first();
        let numbers: Vec<_> = tickets.state.lock().tickets().map(|ticket| ticket.number).collect();
        assert_eq!(numbers, [1, 0]);
        drop(second);
        assert!(!tickets.is_first());
        assert_eq!(tickets.take_gone(false), [0]);
        let missing: Vec<_> =
            tickets.take_missing(false).iter().map(|ticket| ticket.number).collect();
        assert_eq!(missing, [1]);
    }
}
