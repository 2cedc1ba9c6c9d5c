//! All fair queues of a manager.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ahash::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::fair_queue::FairQueue;
use super::shared::FairShared;
use crate::ballot::Ballot;
use crate::error::{LockError, Vote, Votes};
use crate::key::LockKey;
use crate::lock::{LockSpec, QueueKey};
use crate::log_limit::LogLimit;
use crate::node::{NodeStatus, QueueAction, QueueOp};
use crate::random::hash_state;

/// The fair queues in which this process waits.
#[derive(Debug)]
pub(crate) struct FairQueues {
    pub(super) shared: Arc<FairShared>,
    by_key: Mutex<HashMap<QueueKey, Arc<FairQueue>, RandomState>>,
}

impl FairQueues {
    pub(crate) fn new(ballot: Ballot, log_limit: Arc<LogLimit>) -> Arc<Self> {
        let shared = FairShared::new(ballot, log_limit);
        let by_key = Mutex::new(HashMap::with_hasher(hash_state()));
        Arc::new(Self { shared, by_key })
    }

    /// Calls `add` with the queue of a lock. No other call of this method or of `remove` runs at the same time.
    pub(super) fn with_queue<T>(
        &self,
        spec: &LockSpec,
        add: impl FnOnce(&Arc<FairQueue>) -> T,
    ) -> T {
        let mut by_key = self.by_key.lock();
        if by_key.is_empty() {
            self.shared.wake_idle_keeper();
        }
        let queue = by_key
            .entry(spec.queue_key().clone())
            .or_insert_with(|| FairQueue::new(&self.shared, spec));
        add(queue)
    }

    /// Removes a waiter from its queue, and removes the queue after its last waiter.
    pub(super) fn remove(&self, queue: &FairQueue, number: u64) {
        let mut by_key = self.by_key.lock();
        if queue.remove(number) {
            by_key.remove(queue.spec().queue_key());
        }
    }

    /// Returns whether a caller waits in the fair queue of a lock, in any process.
    ///
    /// # Errors
    ///
    /// Returns [`LockError::Unavailable`] if no node keeps the order.
    pub(crate) async fn is_occupied(
        &self,
        spec: &LockSpec,
        key: &LockKey,
    ) -> Result<bool, LockError> {
        let ballot = &self.shared.ballot;
        let mut votes = Vec::new();
        for (index, status) in ballot.statuses.iter().enumerate() {
            let attempt = match status.get() {
                NodeStatus::Down(reason) => Err(reason),
                NodeStatus::Up | NodeStatus::Connecting => {
                    let op = QueueOp::new(spec, self.shared.process, QueueAction::Inspect);
                    self.shared.call(index, op).await
                }
            };
            match attempt {
                Ok(reply) => return Ok(reply.first.is_some()),
                Err(error) => votes.push(Some(Vote::Failed(error))),
            }
        }
        let names = ballot.nodes.iter().map(|node| Arc::clone(node.name()));
        let votes: Votes = names.zip(votes).collect();
        Err(LockError::Unavailable { key: key.clone(), votes })
    }

    /// Removes the tickets of all waiters, and wakes them, because the manager is shut down.
    pub(crate) fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        let queues: Vec<_> = self.by_key.lock().values().cloned().collect();
        for queue in queues {
            queue.close();
        }
    }

    /// Returns the queues of these keys, and the queues that are due at `now`, the oldest queue first.
    pub(super) fn due(
        &self,
        urgent: &HashSet<QueueKey>,
        now: Option<Instant>,
    ) -> Vec<Arc<FairQueue>> {
        let by_key = self.by_key.lock();
        let mut due: Vec<_> = match now {
            Some(now) => {
                let is_due = |(key, queue): &(&QueueKey, &Arc<FairQueue>)| {
                    urgent.contains(*key) || queue.due() <= now
                };
                by_key.iter().filter(is_due).map(|(_, queue)| Arc::clone(queue)).collect()
            }
            None => urgent.iter().filter_map(|key| by_key.get(key).cloned()).collect(),
        };
        due.sort_by_key(|queue| queue.id());
        due
    }

    /// Returns when the next queue is due, without the queues of these keys; `None` if there is no other.
    pub(super) fn next_due(&self, in_progress: &HashSet<QueueKey>) -> Option<Instant> {
        let by_key = self.by_key.lock();
        let others = by_key.iter().filter(|(key, _)| !in_progress.contains(*key));
        others.map(|(_, queue)| queue.due()).min()
    }

    /// Returns the `Notify` that wakes the keeper's task.
    pub(super) fn wake(&self) -> Arc<Notify> {
        self.shared.wake()
    }

    #[cfg(test)]
    pub(crate) fn process(&self) -> crate::node::ProcessId {
        self.shared.process
    }

    #[cfg(any(test, feature = "unstable-simulation"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.lock().is_empty()
    }
}
