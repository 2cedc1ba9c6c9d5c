//! The place of one waiter in a fair queue.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::fair_queue::{FairQueue, Turn};
use super::fair_queues::FairQueues;
use crate::error::{NodeError, Vote, Votes};
use crate::lock::LockSpec;
use crate::node::Node;

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
        }
    }
}

impl FairPlace {
    /// Returns the queue.
    pub(crate) fn queue(&self) -> &Arc<FairQueue> {
        &self.queue
    }

    /// Enters the queue. The first poll sends the ticket, so that tickets are sent in the order of arrival.
    pub(crate) async fn enter(&self) {
        self.was_sent.store(true, Ordering::Relaxed);
        self.queue.enter(self.number()).await;
    }

    /// Waits until the first ticket of all belongs to this process. Calls `is_behind` when the ticket of this waiter is in the
    /// queue behind a ticket of another process. Cancel safe.
    ///
    /// # Errors
    ///
    /// Returns the reasons of the nodes if none of them keeps the order, or if the runtime that keeps the place is not driven.
    pub(crate) async fn turn(&self, mut is_behind: impl FnMut()) -> Result<(), Votes> {
        let ballot = &self.queues.shared.ballot;
        let mut idle = pin!(ballot.home.idle(ballot.node_timeout));
        loop {
            let mut changed = pin!(self.queue.changed().notified());
            changed.as_mut().enable();
            match self.queue.turn() {
                Turn::Now => return Ok(()),
                // Nobody looks after the ticket while the home is idle.
                Turn::Later if ballot.home.was_idle() => {}
                Turn::Later if self.queue.is_entered(self.number()) => is_behind(),
                Turn::Later => {}
                Turn::NoConductor(searches, votes) => {
                    if self.failed_searches.swap(searches, Ordering::Relaxed) < searches {
                        return Err(votes);
                    }
                    self.queue.wake_keeper();
                }
            }
            tokio::select! {
                () = changed => {}
                () = &mut idle => {
                    let idle = Vote::Failed(NodeError::RuntimeIdle);
                    let votes = |node: &Arc<dyn Node>| (Arc::clone(node.name()), Some(idle.clone()));
                    return Err(ballot.nodes.iter().map(votes).collect());
                }
            }
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
