//! A caller that waits for a lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::entry::{EntryState, QueueEntry, WaiterOptions};
use super::outage::Outage;
use super::queues::Queues;
use super::release_signal::{ReleaseSignal, quorum_ready};
use super::wait_queue::WaitQueue;
use crate::ballot::Ballot;
use crate::error::{LockError, Votes};
use crate::key::LockKey;
use crate::lease::Held;
use crate::lock::{LockSpec, Mode, QueueKey};

/// A server removes a key up to a millisecond after its time to live.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);

/// A caller that waits for a lock, with its place in the queue. Dropping it leaves the queue; a lock that
/// was handed over to it and not taken goes on to the next waiter.
#[derive(Debug)]
pub(crate) struct Waiter {
    queues: Arc<Queues>,
    spec: Arc<LockSpec>,
    key: QueueKey,
    entry: Arc<QueueEntry>,
    /// How the caller found the queue.
    arrival: Arrival,
}

/// How a caller found the queue of its key.
#[derive(Debug, Clone, Copy)]
enum Arrival {
    /// Nobody else of this process holds the lock or waits for it.
    First,
    /// It waits behind other callers of this process since then.
    Queued(Instant),
    /// The callers before it wait through an outage.
    InOutage,
}

/// What the waiting of a caller has led to.
#[derive(Debug)]
pub(crate) enum WaitOutcome {
    /// The lock was handed over to it.
    HandedOver(Arc<Held>),
    /// It is the first waiter, and has to ask the nodes.
    AskNodes,
    /// Its own scope has come to hold the lock.
    HeldByScope(Arc<Held>),
}

enum Wait {
    UntilWoken,
    For(Duration),
    /// Until another caller of this process lets go, loses the lock, or overruns its lease.
    Behind(Arc<Held>),
}

impl Queues {
    /// Puts a caller at the end of the queue.
    pub(crate) fn join(
        self: &Arc<Self>,
        spec: &Arc<LockSpec>,
        key: &LockKey,
        options: WaiterOptions,
    ) -> Result<Waiter, LockError> {
        let entry = Arc::new(QueueEntry::new(options));
        let queue_key = spec.queue_key().clone();
        let mut by_key = self.by_key.lock();
        let queue = by_key.entry(queue_key.clone()).or_default();
        if queue.waiting.len() >= self.max_waiters {
            return Err(LockError::TooManyWaiters { key: key.clone(), limit: self.max_waiters });
        }
        let arrival = self.arrival(queue, spec.mode());
        queue.waiting.push_back(Arc::clone(&entry));
        drop(by_key);
        let (queues, spec) = (Arc::clone(self), Arc::clone(spec));
        Ok(Waiter { queues, spec, key: queue_key, entry, arrival })
    }

    fn arrival(&self, queue: &WaitQueue, mode: Mode) -> Arrival {
        if queue.held_for(mode).is_some() {
            Arrival::Queued(Instant::now())
        } else if queue.waiting.is_empty() {
            Arrival::First
        } else if queue.outage.is_some() || !self.ballot.has_quorum() {
            Arrival::InOutage
        } else {
            Arrival::Queued(Instant::now())
        }
    }
}

impl Waiter {
    pub(crate) fn spec(&self) -> &Arc<LockSpec> {
        &self.spec
    }

    /// Waits until the caller is handed the lock, or has to act itself. Cancel safe.
    pub(crate) async fn wait(&self) -> WaitOutcome {
        loop {
            let changed = self.entry.changed.notified();
            let wait = match self.look() {
                Ok(outcome) => return outcome,
                Err(wait) => wait,
            };
            match wait {
                Wait::UntilWoken => changed.await,
                Wait::For(duration) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = sleep(duration) => {}
                    }
                }
                Wait::Behind(held) => {
                    let over = held.remaining() + AFTER_EXPIRY;
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = held.lost() => {}
                        () = sleep(over) => {}
                    }
                }
            }
        }
    }

    fn look(&self) -> Result<WaitOutcome, Wait> {
        let mut by_key = self.queues.by_key.lock();
        let mut state = self.entry.state.lock();
        if matches!(*state, EntryState::HandedOver(_)) {
            let taken = std::mem::replace(&mut *state, EntryState::Waiting);
            if let EntryState::HandedOver(held) = taken {
                return Ok(WaitOutcome::HandedOver(held));
            }
        }
        if self.queues.is_closed() {
            return Ok(WaitOutcome::AskNodes);
        }
        let Some(queue) = by_key.get_mut(&self.key) else { return Err(Wait::UntilWoken) };
        if let Some(own) = queue.held_by_scope_of(&self.entry) {
            return Ok(WaitOutcome::HeldByScope(Arc::clone(own)));
        }
        let is_first = queue.waiting.front().is_some_and(|first| Arc::ptr_eq(first, &self.entry));
        if !is_first {
            return Err(Wait::UntilWoken);
        }
        // A holder of this process may overrun its lease.
        if let Some((held, _)) = queue.conflicting(self.spec.mode()) {
            return Err(Wait::Behind(Arc::clone(held)));
        }
        if let Some(left) = queue.fairness.yields_for() {
            return Err(Wait::For(left));
        }
        *state = EntryState::Asking;
        Ok(WaitOutcome::AskNodes)
    }

    /// Goes back to the head of the queue, after what was handed over has turned out to be lost.
    pub(crate) fn rejoin(&self) {
        self.queues.rejoin(&self.key, &self.entry);
    }

    /// When the caller came, if it had to wait behind another caller of this process.
    pub(super) fn queued_since(&self) -> Option<Instant> {
        match self.arrival {
            Arrival::Queued(since) => Some(since),
            Arrival::First | Arrival::InOutage => None,
        }
    }

    /// Whether the callers before this one waited through an outage when it came.
    pub(crate) fn came_in_outage(&self) -> bool {
        matches!(self.arrival, Arrival::InOutage)
    }

    pub(super) fn outage_grace(&self) -> Duration {
        self.queues.outage_grace
    }

    pub(super) fn ballot(&self) -> &Ballot {
        &self.queues.ballot
    }

    /// Resolves when another caller, or a shutdown, wakes this one.
    pub(super) async fn woken(&self) {
        self.entry.changed.notified().await;
    }

    /// Notes that a ballot, which began at `begun`, had no quorum; returns since when that is so.
    pub(super) fn note_outage(&self, begun: Instant, votes: &Votes) -> Instant {
        let mut by_key = self.queues.by_key.lock();
        let Some(queue) = by_key.get_mut(&self.key) else { return begun };
        let since = queue.outage.as_ref().map_or(begun, |outage| outage.since);
        queue.outage = Some(Outage { since, votes: votes.clone() });
        since
    }

    /// Notes that a quorum of nodes answers. The first waiter need not pause any longer.
    pub(crate) fn note_quorum(&self) {
        let mut by_key = self.queues.by_key.lock();
        if let Some(queue) = by_key.get_mut(&self.key)
            && queue.outage.take().is_some()
        {
            queue.wake_first();
        }
    }

    /// The last votes of the outage that the callers of this key wait through, if they do.
    pub(crate) fn outage_votes(&self) -> Option<Votes> {
        let by_key = self.queues.by_key.lock();
        by_key.get(&self.key)?.outage.as_ref().map(|outage| outage.votes.clone())
    }

    /// The release signal of this queue, if a waiter has begun to listen.
    pub(crate) fn release_signal(&self) -> Option<Arc<ReleaseSignal>> {
        self.queues.by_key.lock().get(&self.key)?.release_signal.clone()
    }

    /// Begins to listen, and waits until no release is missed any more, at most for `timeout`.
    pub(crate) async fn listen(&self, timeout: Duration) -> Arc<ReleaseSignal> {
        let (signal, ready) = ReleaseSignal::listen(&self.queues.ballot.nodes, &self.spec);
        let signal = Arc::new(signal);
        if let Some(queue) = self.queues.by_key.lock().get_mut(&self.key) {
            queue.release_signal = Some(Arc::clone(&signal));
        }
        quorum_ready(ready, timeout).await;
        signal
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.queues.leave(&self.key, &self.entry);
    }
}
