//! The wait of one caller in a fair queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::attendant::FairDriver;
use super::fair_queues::FairQueues;
use super::machine::FairPosition;
use super::queue::FairQueue;
use crate::error::Votes;
use crate::lock::LockSpec;
use crate::waiting::machine::Fair;

/// The wait of one caller in a fair queue, where it has a ticket. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct FairWait {
    driver: FairDriver,
    /// The number of the waiter.
    number: u64,
}

impl FairWait {
    /// Takes a ticket for the fair queue of a lock, which [`enter`](Self::enter) sends.
    pub(crate) fn new(fair: &Arc<FairQueues>, spec: &LockSpec) -> Self {
        let number = fair.next_ticket.fetch_add(1, Ordering::Relaxed);
        let mut by_key = fair.lock(spec);
        let new = || {
            let statuses = &fair.queues.ballot.statuses;
            let first_up = statuses.iter().position(|status| status.get().is_up());
            FairQueue::new(statuses.len(), first_up.unwrap_or_default())
        };
        let queue = by_key.entry(spec.key().clone()).or_insert_with(new);
        // An attendant ends only if there are no waiters, and looks under the lock of the queues.
        queue.machine.lock().add(number, Instant::now());
        let (fair, queue) = (Arc::clone(fair), Arc::clone(queue));
        Self { driver: FairDriver { fair, spec: spec.clone(), queue }, number }
    }

    pub(crate) fn queue(&self) -> &Arc<FairQueue> {
        &self.driver.queue
    }

    /// Enters the queue. The ticket is sent before this function returns, unless another operation is under way, so that
    /// tickets are sent in the order of arrival.
    pub(crate) fn enter(&self) {
        self.driver.start();
        self.driver.drive_here();
    }

    /// Returns where this process stands in the queue. If no node keeps the order, returns the votes, only once for each search.
    pub(crate) fn position(&self) -> Result<Fair, Votes> {
        let FairDriver { fair, queue, .. } = &self.driver;
        let mut machine = queue.machine.lock();
        let position = machine.look(self.number, Instant::now());
        if machine.is_woken() {
            queue.wake.notify_one();
        }
        match position {
            FairPosition::First(..) => Ok(Fair::First),
            FairPosition::Behind(since) => Ok(Fair::Behind(since)),
            FairPosition::Unknown | FairPosition::Stalled => Ok(Fair::Unknown),
            FairPosition::NoConductor(reasons) => Err(fair.no_conductor(reasons)),
        }
    }

    /// Resolves when the position has changed since the last call of [`position`](Self::position). Cancel safe.
    pub(crate) async fn changed(&self) {
        let seen = self.queue().machine.lock().seen(self.number);
        let mut changed = self.queue().changed.subscribe();
        let _ = changed.wait_for(|changes| *changes > seen).await;
    }

    /// Records that this waiter has got the lock: the first ticket becomes that of this waiter.
    pub(crate) fn take_first(&self) {
        self.queue().machine.lock().take_first(self.number);
    }
}

/// The removal is sent before this function returns, unless another operation is under way: then it follows the reply. So it
/// never overtakes the ticket on its way to the node.
impl Drop for FairWait {
    fn drop(&mut self) {
        let FairDriver { fair, spec, queue } = &self.driver;
        queue.machine.lock().remove(self.number);
        if self.driver.drive_here() {
            // No caller has entered this queue, or the runtime has ended.
            fair.remove_if(spec, queue, |machine| !machine.has_waiters());
        }
    }
}
