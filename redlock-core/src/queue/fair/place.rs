//! The place of one waiter in a fair queue.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::attendant;
use super::fair_queues::FairQueues;
use super::tickets::{FairPosition, Tickets};
use crate::lock::LockSpec;
use crate::queue::Queues;

/// The place of one waiter in a fair queue. A dropped place leaves the queue.
#[derive(Debug)]
pub(crate) struct FairPlace {
    fair: Arc<FairQueues>,
    spec: LockSpec,
    tickets: Arc<Tickets>,
    /// The number of the ticket. Another waiter of this process may exchange it.
    number: Arc<AtomicU64>,
    /// How often the attendant had searched for a conductor in vain when this waiter last knew.
    failed_searches: AtomicU64,
    /// The version of the position when this waiter last looked at it.
    seen: AtomicU64,
}

impl FairPlace {
    /// Takes a ticket for the fair queue of a lock, which [`enter`](Self::enter) sends.
    pub(crate) fn new(fair: &Arc<FairQueues>, spec: &LockSpec) -> Self {
        let number = Arc::new(AtomicU64::new(fair.next_ticket()));
        let (tickets, searches) = {
            let mut by_key = fair.lock(spec);
            let tickets = by_key.entry(spec.key().clone()).or_insert_with(Tickets::new);
            // An attendant ends only if there are no waiters, and looks under the same lock.
            (Arc::clone(tickets), tickets.add(&number))
        };
        Self {
            fair: Arc::clone(fair),
            spec: spec.clone(),
            tickets,
            number,
            failed_searches: AtomicU64::new(searches),
            seen: AtomicU64::new(0),
        }
    }

    /// Enters the queue. The attendant sends the ticket before this function returns, unless it is busy, so that tickets are
    /// sent in the order of arrival.
    pub(crate) fn enter(&self, queues: &Arc<Queues>) {
        let start = || attendant::start(&self.fair, queues, &self.spec, &self.tickets);
        let attendant = self.tickets.attendant.get_or_init(start);
        self.tickets.wake_attendant();
        attendant.poll_here(&self.fair.ballot.home);
    }

    pub(crate) fn tickets(&self) -> &Arc<Tickets> {
        &self.tickets
    }

    /// Returns where this process stands in the queue. Reports only once that no node keeps the order, for each search of the
    /// attendant.
    pub(crate) fn position(&self) -> FairPosition {
        let (position, version, searches) = self.tickets.look(&self.number);
        self.seen.store(version, Ordering::Relaxed);
        if matches!(position, FairPosition::NoConductor(_))
            && self.failed_searches.swap(searches, Ordering::Relaxed) >= searches
        {
            self.tickets.wake_attendant();
            return FairPosition::Unknown;
        }
        position
    }

    /// Resolves when the position has changed since the last call of [`position`](Self::position). Cancel safe.
    pub(crate) async fn changed(&self) {
        let mut changed = pin!(self.tickets.changed.notified());
        changed.as_mut().enable();
        if self.tickets.version() == self.seen.load(Ordering::Relaxed) {
            changed.await;
        }
    }

    /// Makes the first ticket that of this waiter, which has got the lock. It leaves the queue with this ticket.
    pub(crate) fn take_first(&self) {
        self.tickets.exchange_for_first(&self.number);
    }
}

impl Drop for FairPlace {
    fn drop(&mut self) {
        self.tickets.remove(&self.number);
        let home = &self.fair.ballot.home;
        // The attendant sends the removal before this function returns, unless it is busy.
        if self.tickets.attendant.get().is_none_or(|attendant| attendant.poll_here(home)) {
            // No caller has entered this queue, or the runtime has ended.
            self.fair.remove_unused(&self.spec, &self.tickets);
        }
    }
}
