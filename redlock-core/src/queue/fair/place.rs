//! The place of one waiter in a fair queue.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::time::Instant;

use super::fair_queue::{FairQueue, Turn};
use super::fair_queues::FairQueues;
use crate::error::Votes;
use crate::lock::LockSpec;

/// The place of one waiter in a fair queue. A dropped place leaves the queue.
#[derive(Debug)]
pub(crate) struct FairPlace {
    queues: Arc<FairQueues>,
    queue: Arc<FairQueue>,
    /// The number of the ticket. Another waiter of this process may exchange it.
    number: Arc<AtomicU64>,
    /// Whether the ticket may be in the queue of a node.
    was_sent: AtomicBool,
    /// How often the keeper had looked for a conductor in vain when this waiter last knew.
    failed_searches: AtomicU64,
    /// The version of the queue when this waiter last looked at it.
    seen: AtomicU64,
}

/// Where a process stands in a fair queue.
#[derive(Debug)]
pub(crate) enum FairPosition {
    /// The first ticket belongs to this process.
    First,
    /// The conductor has replied, at this time, that the first ticket belongs to another process.
    Behind(Instant),
    /// Not known at the moment.
    Unknown,
    /// No node keeps the order, for these reasons.
    NoConductor(Votes),
}

impl FairQueues {
    /// Adds a waiter, which then has to [enter](FairPlace::enter) the queue.
    pub(crate) fn join(self: &Arc<Self>, spec: &LockSpec) -> FairPlace {
        let number = Arc::new(AtomicU64::new(self.shared.next_ticket()));
        let (queue, searches) =
            self.with_queue(spec, |queue| (Arc::clone(queue), queue.add(&number)));
        FairPlace {
            queues: Arc::clone(self),
            queue,
            number,
            was_sent: AtomicBool::new(false),
            failed_searches: AtomicU64::new(searches),
            seen: AtomicU64::new(0),
        }
    }
}

impl FairPlace {
    /// Returns the queue of this process.
    pub(crate) fn queue(&self) -> &Arc<FairQueue> {
        &self.queue
    }

    /// Enters the queue. The first poll sends the ticket, so that tickets are sent in the order of arrival.
    pub(crate) async fn enter(&self) {
        self.was_sent.store(true, Ordering::Relaxed);
        self.queue.enter(self.number()).await;
    }

    /// Returns where this process stands in the queue. Reports only once that no node keeps the order, for each search of the
    /// keeper.
    pub(crate) fn position(&self) -> FairPosition {
        let (turn, version) = self.queue.turn();
        self.seen.store(version, Ordering::Relaxed);
        match turn {
            Turn::Now => FairPosition::First,
            // The ticket is in the queue of a node, as far as this process knows.
            Turn::Behind(since) if self.queue.is_entered(self.number()) => {
                FairPosition::Behind(since)
            }
            Turn::Behind(_) | Turn::Later => FairPosition::Unknown,
            Turn::NoConductor(searches, votes) => {
                if self.failed_searches.swap(searches, Ordering::Relaxed) < searches {
                    return FairPosition::NoConductor(votes);
                }
                self.queue.wake_keeper();
                FairPosition::Unknown
            }
        }
    }

    /// Resolves when the position may have changed since the last call of [`position`](Self::position). Cancel safe.
    pub(crate) async fn changed(&self) {
        let mut changed = pin!(self.queue.changed().notified());
        changed.as_mut().enable();
        if self.queue.version() == self.seen.load(Ordering::Relaxed) {
            changed.await;
        }
    }

    /// Makes the first ticket that of this waiter, which has got the lock. It leaves the queue with this ticket.
    pub(crate) fn take_first(&self) {
        self.queue.exchange_for_first(self.number());
    }

    fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}

impl Drop for FairPlace {
    fn drop(&mut self) {
        let number = self.number();
        self.queues.remove(&self.queue, number);
        if self.was_sent.load(Ordering::Relaxed) {
            self.queue.leave(vec![number]);
        }
    }
}
