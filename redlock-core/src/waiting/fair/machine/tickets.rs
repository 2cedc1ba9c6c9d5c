//! The waiters of this process and their tickets, and the meaning of a reply for them.

use std::mem;
use std::time::Duration;

use super::super::Instant;
use super::{FairMachine, FairPosition, FairReply, First, STALL};

/// Added to the rest of a presence, so that it is over when the store is asked.
const AFTER_PRESENCE: Duration = Duration::from_millis(2);

/// A waiter of this process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FairWaiter {
    arrived: Instant,
    /// A waiter of this process that gets the lock may exchange its ticket for this one.
    ticket: OwnTicket,
    /// The changes of the position that the waiter has seen.
    seen: u64,
}

/// A ticket of this process, and whether it is in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct OwnTicket {
    number: u64,
    /// Whether the ticket may be in the queue of a node.
    was_sent: bool,
    /// Whether the ticket is in the queue of the conductor.
    is_entered: bool,
}

/// The events of the waiters.
impl<E: Clone> FairMachine<E> {
    /// Adds a waiter, with a ticket of the same number.
    pub(in super::super) fn add(&mut self, number: u64, now: Instant) {
        let ticket = OwnTicket { number, was_sent: false, is_entered: false };
        self.waiters.insert(number, FairWaiter { arrived: now, ticket, seen: self.changes });
        self.is_woken = true;
    }

    /// Removes a waiter and its ticket.
    pub(in super::super) fn remove(&mut self, waiter: u64) {
        let Some(FairWaiter { ticket, .. }) = self.waiters.remove(&waiter) else { return };
        if ticket.was_sent {
            self.gone.push(ticket.number);
        }
        // Otherwise the lock could be handed over before a waiter of another process.
        if matches!(self.position, FairPosition::First(first, _) if first == ticket.number) {
            self.position = FairPosition::Unknown;
        }
        self.is_woken = true;
    }

    /// Returns where this process stands in the queue, as a waiter sees it. Reports only once for each search that no node
    /// keeps the order.
    pub(in super::super) fn look(&mut self, waiter: u64, now: Instant) -> FairPosition<E> {
        self.looked_at = now;
        if matches!(self.position, FairPosition::Stalled) {
            self.position = FairPosition::Unknown;
            self.is_woken = true;
        }
        let Some(waiter) = self.waiters.get_mut(&waiter) else { return FairPosition::Unknown };
        let has_changed = mem::replace(&mut waiter.seen, self.changes) != self.changes;
        match &self.position {
            FairPosition::Behind(_) if !waiter.ticket.is_entered => FairPosition::Unknown,
            FairPosition::NoConductor(_) if !has_changed => {
                self.is_woken = true;
                FairPosition::Unknown
            }
            position => position.clone(),
        }
    }

    /// Makes the first ticket that of this waiter, which has got the lock, if it is the ticket of another waiter of this
    /// process. That waiter gets the ticket of this one. Waiters of one process get the lock in the order of this process,
    /// and their tickets may have overtaken each other.
    pub(in super::super) fn take_first(&mut self, waiter: u64) {
        let FairPosition::First(first, _) = self.position else { return };
        let Some(own) = self.waiters.get(&waiter).map(|waiter| waiter.ticket) else { return };
        let mut waiters = self.waiters.values_mut();
        let Some(other) = waiters.find(|waiter| waiter.ticket.number == first) else { return };
        let first = mem::replace(&mut other.ticket, own);
        if let Some(waiter) = self.waiters.get_mut(&waiter) {
            waiter.ticket = first;
        }
    }

    /// Returns whether the first ticket of all is a ticket of this process.
    pub(in super::super) fn is_first(&self) -> bool {
        matches!(self.position, FairPosition::First(..))
    }

    /// Returns how often the position has changed.
    pub(in super::super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns how often the position had changed when a waiter last looked at it.
    pub(in super::super) fn seen(&self, waiter: u64) -> u64 {
        self.waiters.get(&waiter).map_or(self.changes, |waiter| waiter.seen)
    }

    /// Returns whether something has happened that the machine has not looked at.
    pub(in super::super) fn is_woken(&self) -> bool {
        self.is_woken
    }

    pub(in super::super) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }
}

/// The tickets.
impl<E: Clone> FairMachine<E> {
    fn tickets(&mut self) -> impl Iterator<Item = &mut OwnTicket> {
        self.waiters.values_mut().map(|waiter| &mut waiter.ticket)
    }

    /// Takes the tickets to remove from the conductor. With `all`, those of all waiters too.
    pub(super) fn take_gone(&mut self, all: bool) -> Vec<u64> {
        let mut gone = mem::take(&mut self.gone);
        if all {
            let sent = self.tickets().filter(|ticket| ticket.was_sent);
            gone.extend(sent.map(|ticket| {
                ticket.was_sent = false;
                ticket.number
            }));
        }
        gone
    }

    /// Returns the numbers of all tickets that a former conductor may have.
    pub(super) fn numbers(&mut self) -> Vec<u64> {
        let gone = self.gone.clone();
        self.tickets().map(|ticket| ticket.number).chain(gone).collect()
    }

    /// Returns the tickets to enter on the conductor, or, with `all`, on another node, and how long each has waited.
    pub(super) fn take_missing(&mut self, all: bool, now: Instant) -> Vec<(u64, Duration)> {
        let missing = self.waiters.values_mut().filter(|waiter| all || !waiter.ticket.is_entered);
        let ticket = |waiter: &mut FairWaiter| {
            waiter.ticket.was_sent = true;
            (waiter.ticket.number, now - waiter.arrived)
        };
        missing.map(ticket).collect()
    }

    /// Returns whether the conductor has to enter or to remove tickets.
    pub(super) fn has_changed(&self) -> bool {
        !self.gone.is_empty() || self.waiters.values().any(|waiter| !waiter.ticket.is_entered)
    }

    /// Records that the missing tickets, which were sent, are in the queue of the conductor. If it `has_forgotten` this
    /// process before, the other tickets are not.
    pub(super) fn record_entered(&mut self, has_forgotten: bool) {
        if has_forgotten {
            self.position = FairPosition::Unknown;
        }
        for ticket in self.tickets() {
            ticket.is_entered = if ticket.is_entered { !has_forgotten } else { ticket.was_sent };
        }
    }

    /// Records that the conductor has no tickets of this process, so that all of them are missing.
    pub(super) fn forget_entries(&mut self) {
        self.position = FairPosition::Unknown;
        self.tickets().for_each(|ticket| ticket.is_entered = false);
    }

    /// Evaluates a reply of the conductor.
    pub(super) fn apply(&mut self, reply: FairReply, now: Instant) {
        if matches!(self.position, FairPosition::Stalled) {
            // The places of this process may be lost when a waiter looks again.
            return;
        }
        let position = match reply.first {
            Some(First::Own(first)) if self.tickets().any(|ticket| ticket.number == first) => {
                let since = match self.position {
                    FairPosition::First(_, since) => since,
                    _ => now,
                };
                FairPosition::First(first, since)
            }
            Some(First::Own(first)) => {
                // Its removal was lost, or is next.
                if !self.gone.contains(&first) {
                    self.gone.push(first);
                }
                self.is_woken = true;
                FairPosition::Unknown
            }
            Some(First::Other(present_for)) => {
                self.due = self.due.min(now + present_for + AFTER_PRESENCE);
                FairPosition::Behind(now)
            }
            None => {
                self.forget_entries();
                FairPosition::Unknown
            }
        };
        let is_news = match (&self.position, &position) {
            (FairPosition::Behind(_), FairPosition::Behind(_)) => false,
            (FairPosition::First(former, _), FairPosition::First(first, _)) => former != first,
            _ => true,
        };
        if is_news {
            self.changes += 1;
            if matches!(position, FairPosition::First(..)) {
                self.looked_at = now;
            }
        }
        self.position = position;
    }

    /// Returns whether the first waiter may have stalled, so that [`next`](Self::next) needs to know of the holders.
    pub(in super::super) fn may_have_stalled(&self, now: Instant) -> bool {
        match self.position {
            FairPosition::First(_, since) => now >= since.max(self.looked_at) + STALL,
            FairPosition::Stalled => true,
            _ => false,
        }
    }

    /// Returns whether a waiter has the first ticket, and none has looked at the position for so long. The process then loses
    /// its places when the presence is over. It enters them again when a waiter looks again.
    pub(super) fn has_stalled(&mut self, now: Instant) -> bool {
        if self.is_first() && self.may_have_stalled(now) {
            self.forget_entries();
            self.position = FairPosition::Stalled;
        }
        matches!(self.position, FairPosition::Stalled)
    }
}
