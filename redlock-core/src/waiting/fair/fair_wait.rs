//! The wait of one caller in a fair queue.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use tokio::time::Instant;

use super::attendant;
use super::fair_queues::FairQueues;
use super::tickets::{FairPosition, FairWaiter, OwnTicket, Tickets};
use crate::lock::LockSpec;

/// The wait of one caller in a fair queue, where it has a ticket. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct FairWait {
    fair: Arc<FairQueues>,
    spec: LockSpec,
    pub(crate) tickets: Arc<Tickets>,
    /// The number of the waiter.
    number: u64,
    /// Whether the position has changed since this waiter last looked at it.
    changed: watch::Receiver<()>,
}

impl FairWait {
    /// Takes a ticket for the fair queue of a lock, which [`enter`](Self::enter) sends.
    pub(crate) fn new(fair: &Arc<FairQueues>, spec: &LockSpec) -> Self {
        let number = fair.next_ticket.fetch_add(1, Ordering::Relaxed);
        let ticket = OwnTicket { number, was_sent: false, is_entered: false };
        let mut by_key = fair.lock(spec);
        let tickets = by_key.entry(spec.key().clone()).or_insert_with(Tickets::new);
        // An attendant ends only if there are no waiters, and looks under the lock of the queues.
        let mut state = tickets.state.lock();
        state.waiters.insert(number, FairWaiter { arrived: Instant::now(), ticket });
        let changed = tickets.changed.subscribe();
        drop(state);
        let (fair, tickets) = (Arc::clone(fair), Arc::clone(tickets));
        Self { fair, spec: spec.clone(), tickets, number, changed }
    }

    /// Enters the queue. The attendant sends the ticket before this function returns, unless it is busy, so that tickets are
    /// sent in the order of arrival.
    pub(crate) fn enter(&self) {
        let start = || attendant::start(&self.fair, &self.spec, &self.tickets);
        let attendant = self.tickets.attendant.get_or_init(start);
        self.tickets.wake.notify_one();
        attendant.poll_here(&self.fair.queues.home);
    }

    /// Returns where this process stands in the queue. Reports only once that no node keeps the order, for each search of the
    /// attendant.
    pub(crate) fn position(&mut self) -> FairPosition {
        let mut state = self.tickets.state.lock();
        state.looked_at = Instant::now();
        if matches!(state.position, FairPosition::Stalled) {
            state.position = FairPosition::Unknown;
            self.tickets.wake.notify_one();
        }
        let has_changed = self.changed.has_changed().unwrap_or_default();
        self.changed.mark_unchanged();
        let waiter = state.waiters.get(&self.number);
        let is_entered = waiter.is_some_and(|waiter| waiter.ticket.is_entered);
        match &state.position {
            FairPosition::Behind(_) if !is_entered => FairPosition::Unknown,
            FairPosition::NoConductor(_) if !has_changed => {
                self.tickets.wake.notify_one();
                FairPosition::Unknown
            }
            position => position.clone(),
        }
    }

    /// Resolves when the position has changed since the last call of [`position`](Self::position). Cancel safe.
    pub(crate) async fn changed(&self) {
        // A clone, because only `position` marks a change as seen.
        let _ = self.changed.clone().changed().await;
    }

    /// Makes the first ticket that of this waiter, which has got the lock, if it is the ticket of another waiter of this
    /// process. That waiter gets the ticket of this one. Waiters of one process get the lock in the order of this process,
    /// and their tickets may have overtaken each other.
    pub(crate) fn take_first(&self) {
        let mut state = self.tickets.state.lock();
        let FairPosition::First(first, _) = state.position else { return };
        let Some(own) = state.waiters.get(&self.number).map(|waiter| waiter.ticket) else { return };
        let mut waiters = state.waiters.values_mut();
        let Some(other) = waiters.find(|waiter| waiter.ticket.number == first) else { return };
        let first = mem::replace(&mut other.ticket, own);
        if let Some(waiter) = state.waiters.get_mut(&self.number) {
            waiter.ticket = first;
        }
    }
}

impl Drop for FairWait {
    fn drop(&mut self) {
        let Tickets { state, attendant, wake, .. } = &*self.tickets;
        let mut state = state.lock();
        if let Some(FairWaiter { ticket, .. }) = state.waiters.remove(&self.number) {
            if ticket.was_sent {
                state.gone.push(ticket.number);
            }
            // Otherwise the lock could be handed over before a waiter of another process.
            if matches!(state.position, FairPosition::First(first, _) if first == ticket.number) {
                state.position = FairPosition::Unknown;
            }
        }
        drop(state);
        wake.notify_one();
        let home = &self.fair.queues.home;
        // The attendant sends the removal before this function returns, unless it is busy.
        if attendant.get().is_none_or(|attendant| attendant.poll_here(home)) {
            // No caller has entered this queue, or the runtime has ended.
            self.fair.remove_unused(&self.spec, &self.tickets);
        }
    }
}
