//! A caller that waits for a lock.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::backoff::{AFTER_EXPIRY, poll_pause};
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
use crate::node::Subscription;

/// A caller that waits for a lock, with its place in the queue. A dropped waiter leaves the queue. If a lock
/// was handed over to it and not taken, the lock goes on to the next waiter.
#[derive(Debug)]
pub(crate) struct Waiter {
    queues: Arc<Queues>,
    /// The key in whose queue the caller waits.
    key: QueueKey,
    entry: Arc<QueueEntry>,
    /// How the caller found the queue on arrival.
    arrival: Arrival,
    /// When the caller has to leave its mark on the nodes again, see [`WaitOutcome::LeaveMark`].
    mark_due: Mutex<Instant>,
}

/// How a caller found the queue of its key on arrival.
#[derive(Debug, Clone, Copy)]
enum Arrival {
    /// No other caller of this process held the lock or waited for it.
    First,
    /// The caller has waited behind other callers of this process since this time.
    Queued(Instant),
    /// The earlier callers were waiting through an outage.
    InOutage,
}

/// The outcome of a wait.
#[derive(Debug)]
pub(crate) enum WaitOutcome {
    /// The lock was handed over to the waiter.
    HandedOver(Arc<Held>),
    /// The waiter is the first of its queue, or a reader that was called, and has to ask the nodes.
    AskNodes,
    /// The waiter's own scope holds the lock now.
    HeldByScope(Arc<Held>),
    /// The waiter wants the lock alone, and is the first of its queue, while other callers of this process share the
    /// lock. It has to leave its mark on the nodes, so that they admit no further callers. Returned again whenever the
    /// mark has to be renewed.
    LeaveMark,
}

enum WaitStep {
    UntilNotified,
    For(Duration),
    /// Until another caller of this process releases the lock or loses it, at most for this time. The caller may overrun
    /// its lease.
    UntilHolderEnds(Arc<Held>, Duration),
}

impl Queues {
    /// Adds a caller to the queue of a key of its lock: the one at `index`, which is `key`.
    pub(crate) fn join(
        self: &Arc<Self>,
        spec: &LockSpec,
        index: usize,
        key: &LockKey,
        options: WaiterOptions,
    ) -> Result<Waiter, LockError> {
        let entry = Arc::new(QueueEntry::new(spec.clone(), options));
        let queue_key = spec.queue_keys()[index].clone();
        let mut by_key = self.by_key.lock();
        let queue = by_key.entry(queue_key.clone()).or_default();
        if queue.waiting.len() >= self.max_waiters {
            return Err(LockError::TooManyWaiters { key: key.clone(), limit: self.max_waiters });
        }
        let arrival = self.arrival(queue, spec.mode());
        queue.waiting.add(&entry);
        drop(by_key);
        let (queues, mark_due) = (Arc::clone(self), Mutex::new(Instant::now()));
        Ok(Waiter { queues, key: queue_key, entry, arrival, mark_due })
    }

    fn arrival(&self, queue: &WaitQueue, mode: Mode) -> Arrival {
        if queue.local_conflict_remaining(mode).is_some() {
            Arrival::Queued(Instant::now())
        } else if queue.waiting.is_empty() {
            Arrival::First
        } else if queue.waiting.outage().is_some() || !self.ballot.has_quorum() {
            Arrival::InOutage
        } else {
            Arrival::Queued(Instant::now())
        }
    }
}

impl Waiter {
    /// Waits until the lock is handed over to the caller, or the caller has to act itself. Cancel safe.
    pub(crate) async fn wait(&self) -> WaitOutcome {
        loop {
            let changed = self.entry.changed.notified();
            let wait = match self.next_step() {
                Ok(outcome) => return outcome,
                Err(wait) => wait,
            };
            match wait {
                WaitStep::UntilNotified => changed.await,
                WaitStep::For(duration) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = sleep(duration) => {}
                    }
                }
                WaitStep::UntilHolderEnds(held, at_most) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = held.lost() => {}
                        () = sleep(at_most) => {}
                    }
                }
            }
        }
    }

    fn next_step(&self) -> Result<WaitOutcome, WaitStep> {
        let by_key = self.queues.by_key.lock();
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
        let Some(queue) = by_key.get(&self.key) else { return Err(WaitStep::UntilNotified) };
        if let Some(own) = queue.held_by_scope_of(&self.entry) {
            return Ok(WaitOutcome::HeldByScope(Arc::clone(own)));
        }
        if !queue.waiting.is_first(&self.entry) && !matches!(*state, EntryState::Called) {
            return Err(WaitStep::UntilNotified);
        }
        if let Some((held, remaining)) = queue.holders.conflicting(self.entry.spec.mode()) {
            let mark_in = self.time_until_mark(held, remaining);
            if mark_in.is_some_and(|time| time.is_zero()) {
                return Ok(WaitOutcome::LeaveMark);
            }
            self.entry.watch(held);
            let over = remaining + AFTER_EXPIRY;
            let at_most = mark_in.map_or(over, |time| time.min(over));
            return Err(WaitStep::UntilHolderEnds(Arc::clone(held), at_most));
        }
        if let Some(left) = queue.fairness.yield_remaining().filter(|_| queue.holders.is_empty()) {
            return Err(WaitStep::For(left));
        }
        *state = EntryState::Asking;
        Ok(WaitOutcome::AskNodes)
    }

    /// Returns the time until the waiter, which waits for this holder to end, has to leave its mark. Returns zero only
    /// once for each time. `None` if the waiter leaves no mark.
    fn time_until_mark(&self, holder: &Held, remaining: Duration) -> Option<Duration> {
        if self.entry.spec.mode() != Mode::Exclusive || !holder.attempt().spec().mode().is_shared()
        {
            return None;
        }
        let (now, mut due) = (Instant::now(), self.mark_due.lock());
        if *due > now {
            return Some(*due - now);
        }
        let pause = poll_pause(remaining);
        *due = now + pause;
        // The mark of a fair waiter would keep out the callers of other processes before it.
        let is_next = self.entry.options.fair.as_ref().is_none_or(|queue| queue.is_first());
        Some(if is_next { Duration::ZERO } else { pause })
    }

    /// Records that the lock was refused, by the nodes or because another caller of this process holds it. Returns whether the
    /// waiter goes on asking the nodes. Only the first waiter does, if the nodes have refused it. Every other waiter waits in
    /// its place again.
    pub(crate) fn goes_on_asking(&self, is_held_here: bool) -> bool {
        let by_key = self.queues.by_key.lock();
        let is_first = |queue: &WaitQueue| queue.waiting.is_first(&self.entry);
        let is_first = !is_held_here && by_key.get(&self.key).is_none_or(is_first);
        *self.entry.state.lock() = if is_first { EntryState::Refused } else { EntryState::Waiting };
        is_first
    }

    /// Returns to the head of the queue after the lock that was handed over turned out to be lost.
    pub(crate) fn rejoin(&self) {
        self.queues.rejoin(&self.key, &self.entry);
    }

    /// Returns when the caller arrived, if it had to wait behind another caller of this process.
    pub(super) fn queued_since(&self) -> Option<Instant> {
        match self.arrival {
            Arrival::Queued(since) => Some(since),
            Arrival::First | Arrival::InOutage => None,
        }
    }

    /// Returns whether the earlier callers were waiting through an outage when this caller arrived.
    pub(crate) fn arrived_in_outage(&self) -> bool {
        matches!(self.arrival, Arrival::InOutage)
    }

    pub(super) fn outage_grace(&self) -> Duration {
        self.queues.outage_grace
    }

    /// Asks the nodes for a turn of the readers, as long as the returned subscriptions live.
    pub(crate) fn request_turn(&self) -> Vec<Subscription> {
        let nodes = self.queues.ballot.nodes.iter();
        nodes.map(|node| node.request_turn(&self.entry.spec)).collect()
    }

    pub(super) fn ballot(&self) -> &Ballot {
        &self.queues.ballot
    }

    /// Resolves when another caller or a shutdown wakes this waiter.
    pub(crate) async fn notified(&self) {
        self.entry.changed.notified().await;
    }

    /// Records that a ballot, which began at `begun`, found no quorum. Returns when the outage began.
    pub(super) fn record_outage(&self, begun: Instant, votes: &Votes) -> Instant {
        let mut by_key = self.queues.by_key.lock();
        let Some(queue) = by_key.get_mut(&self.key) else { return begun };
        let since = queue.waiting.outage().map_or(begun, |outage| outage.since);
        queue.waiting.set_outage(Outage { since, votes: votes.clone() });
        since
    }

    /// Records that a quorum of nodes answers: the outage is over, and the first waiter is woken from its
    /// pause.
    pub(crate) fn record_quorum(&self) {
        let mut by_key = self.queues.by_key.lock();
        if let Some(queue) = by_key.get_mut(&self.key)
            && queue.waiting.end_outage()
        {
            queue.wake_first();
        }
    }

    /// Returns the last votes of the outage that the waiters of this key are in; `None` without an outage.
    pub(crate) fn outage_votes(&self) -> Option<Votes> {
        let by_key = self.queues.by_key.lock();
        by_key.get(&self.key)?.waiting.outage().map(|outage| outage.votes.clone())
    }

    /// Returns the release signal of this queue, if a waiter for a lock of the same mode has subscribed.
    pub(crate) fn release_signal(&self) -> Option<Arc<ReleaseSignal>> {
        let by_key = self.queues.by_key.lock();
        let signal = by_key.get(&self.key)?.waiting.release_signal();
        signal.filter(|signal| signal.serves(self.entry.spec.mode())).cloned()
    }

    /// Subscribes to the releases of the queue's key, and waits until a quorum of subscriptions is in effect, at
    /// most for `timeout`.
    pub(crate) async fn subscribe(&self, timeout: Duration) -> Arc<ReleaseSignal> {
        let spec = self.entry.spec.of_key(&self.key);
        let (signal, ready) = ReleaseSignal::subscribe(&self.queues.ballot.nodes, &spec);
        let signal = Arc::new(signal);
        if let Some(queue) = self.queues.by_key.lock().get_mut(&self.key) {
            queue.waiting.set_release_signal(&signal);
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
