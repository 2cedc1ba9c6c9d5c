//! The place of one waiting caller.

use std::mem;
use std::sync::Arc;

use tokio::time::Instant;

use super::backoff::{Backoff, Patience};
use super::fair::FairWait;
use super::key_queue::KeyQueue;
use super::queues::Queues;
use super::release_signal::{ReleaseCounts, ReleaseSignal};
use super::waiter::{Waiter, WaiterOptions};
use crate::error::LockError;
use crate::key::LockKey;
use crate::lock::{LockSpec, Mark, Mode, OwnerLabel};
use crate::node::Ask;

/// The place of one caller that waits for a lock. Dropping it leaves everything that the caller has entered: the queue of
/// a key, the fair queue, its mark on the nodes, and its request for a turn of the readers. A lock that was handed over to
/// the caller and not taken goes on to the next waiter.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(super) queues: &'a Arc<Queues>,
    pub(super) waiter: Arc<Waiter>,
    /// The index of the key in whose queue the waiter stands. `None` as long as it asks the nodes before it joins a queue.
    pub(super) at: Option<usize>,
    /// The knowledge of the caller for its next question to the nodes. The drop withdraws its mark from them.
    pub(crate) ask: Ask,
    pub(super) last_ask: LastAsk,
    /// The label of the holder that the last look-up has found. A waiter that was woken does not look it up.
    pub(super) last_holder: Option<OwnerLabel>,
    /// The pauses of a waiter whose votes were split.
    pub(super) backoff: Backoff,
    pub(super) patience: Patience,
    /// Since when the caller has waited for a holder, and not only for the nodes. `None` for a new caller.
    pub(super) waiting_since: Option<Instant>,
    /// Since when a waiter that waits for ever has waited for the nodes in the present outage.
    pub(super) outage_since: Option<Instant>,
    /// The pauses in the present outage.
    pub(super) outage_backoff: Option<Backoff>,
    /// When a lock of several keys last went on to the queue of another key.
    pub(super) moved: Option<Instant>,
    /// The time until which the waiter does not ask the nodes.
    pub(super) not_before: Option<Instant>,
    /// The time until which a writer does not ask behind readers of its process: the nodes have forgotten their locks.
    pub(super) behind_readers_until: Option<Instant>,
    pub(super) fair: Option<FairWait>,
}

/// The last question to the nodes.
#[derive(Debug)]
pub(super) struct LastAsk {
    /// When the caller asked, or began to take a lock, or noticed that no node keeps the fair order.
    pub(super) begun: Instant,
    /// The signal that was in effect, and the releases that had been published before.
    pub(super) signal: Option<(Arc<ReleaseSignal>, ReleaseCounts)>,
}

impl<'a> Place<'a> {
    /// Enters the queue of the first busy key. Of several keys that are all free, the caller enters none before the nodes have
    /// refused it, so that it keeps nobody out of the first one. A caller that comes in an outage makes one attempt before it
    /// enters, see [`is_in_queue`](Self::is_in_queue).
    pub(crate) fn enter(
        queues: &'a Arc<Queues>,
        spec: &'a LockSpec,
        options: WaiterOptions,
        fair: Option<FairWait>,
    ) -> Result<Self, LockError> {
        let since = options.since;
        let mut place = Self {
            queues,
            waiter: Arc::new(Waiter::new(spec.clone(), options)),
            at: None,
            ask: Ask {
                waits: true,
                mark: (spec.mode() == Mode::Exclusive).then(Mark::random),
                ..Ask::FIRST
            },
            last_ask: LastAsk { begun: since, signal: None },
            last_holder: None,
            backoff: Backoff::new(),
            patience: Patience::new(spec.mode()),
            waiting_since: None,
            outage_since: None,
            outage_backoff: None,
            moved: None,
            not_before: None,
            behind_readers_until: None,
            fair,
        };
        let key = if spec.has_several_keys() { queues.busy_key(spec) } else { Some(0) };
        if let Some(key) = key {
            place.arrive(key)?;
        }
        // Afterwards, so that the tickets of this process are in the order of its queue.
        if let Some(fair) = &place.fair {
            fair.enter();
        }
        Ok(place)
    }

    /// Joins the queue of a key, unless the waiters there are in an outage.
    fn arrive(&mut self, key: usize) -> Result<(), LockError> {
        let mut by_key = self.queues.lock(&self.waiter.spec);
        let queue = by_key.entry(self.waiter.spec.key_at(key).clone()).or_default();
        let is_held = queue.keeps_out(self.waiter.spec.mode()).is_some();
        let (is_first, in_outage) = (queue.is_idle(), queue.outage().is_some());
        self.check_room(queue, key)?;
        if !is_first && !is_held && (in_outage || !self.queues.ballot.has_quorum()) {
            return Ok(());
        }
        queue.insert(&self.waiter, || self.queues.list(&self.waiter.spec, key));
        drop(by_key);
        self.at = Some(key);
        if is_held || !is_first {
            self.waiting_since = Some(self.waiter.options.since);
        }
        Ok(())
    }

    /// Returns whether the caller has joined a queue.
    pub(crate) fn is_in_queue(&self) -> bool {
        self.at.is_some()
    }

    /// Joins the queue of a key, and leaves the one in which it is. In each queue, the caller stands in front of later
    /// callers.
    pub(crate) fn move_to(&mut self, key: usize) -> Result<(), LockError> {
        let queue_key = self.waiter.spec.key_at(key).clone();
        if let Some(former) = self.at.take() {
            self.queues.leave(self.waiter.spec.key_at(former), &self.waiter);
        }
        let mut by_key = self.queues.lock(&self.waiter.spec);
        let queue = by_key.entry(queue_key).or_default();
        self.check_room(queue, key)?;
        queue.insert(&self.waiter, || self.queues.list(&self.waiter.spec, key));
        let is_first = queue.is_first(&self.waiter);
        drop(by_key);
        if !is_first {
            // It would keep out the readers before it until it ends.
            self.withdraw_mark();
        }
        self.at = Some(key);
        self.waiting_since.get_or_insert_with(Instant::now);
        self.backoff = Backoff::new();
        self.ask.skip_lookup = false;
        Ok(())
    }

    /// Returns to the head of the queue after the lock that was handed over turned out to be lost.
    pub(crate) fn rejoin(&mut self) {
        let Some(key) = self.at else { return };
        let mut by_key = self.queues.lock(&self.waiter.spec);
        let queue_key = self.waiter.spec.key_at(key).clone();
        let queue = by_key.entry(queue_key).or_default();
        queue.insert_first(&self.waiter, || self.queues.list(&self.waiter.spec, key));
    }

    /// Returns the label of the holder for which the caller waits, as far as this process knows.
    pub(crate) fn holder(&self) -> Option<OwnerLabel> {
        let in_queue = self.with_queue(|queue| {
            let own = queue.holders().last().and_then(|held| held.attempt().token().label());
            own.or_else(|| queue.named_holder().cloned())
        });
        in_queue.flatten().or_else(|| self.last_holder.clone())
    }

    /// Records that the caller has the lock.
    pub(crate) fn acquired(&mut self) {
        self.end_outage();
        if let Some(fair) = &self.fair {
            fair.take_first();
        }
    }

    /// Withdraws the mark from the nodes that may have it. The next question leaves another one.
    fn withdraw_mark(&mut self) {
        if self.ask.met_marks
            && let Some(mark) = &mut self.ask.mark
        {
            let mark = mem::replace(mark, Mark::random());
            self.queues.ballot.withdraw_in_background(&self.waiter.spec, mark);
        }
    }

    /// Returns the key in whose queue the waiter stands.
    pub(super) fn key(&self) -> &LockKey {
        self.waiter.spec.key_at(self.at.unwrap_or_default())
    }

    /// Calls `f` with the queue in which the waiter stands, under the lock of the queues.
    pub(super) fn with_queue<T>(&self, f: impl FnOnce(&mut KeyQueue) -> T) -> Option<T> {
        let mut by_key = self.queues.lock(&self.waiter.spec);
        by_key.get_mut(self.waiter.spec.key_at(self.at?)).map(f)
    }

    /// Refuses a caller for whom the queue of a key has no place left.
    fn check_room(&self, queue: &KeyQueue, key: usize) -> Result<(), LockError> {
        let limit = self.queues.max_waiters;
        if queue.waiters().len() < limit {
            return Ok(());
        }
        Err(LockError::TooManyWaiters { key: self.waiter.spec.key_at(key).clone(), limit })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // Before the next waiter asks the nodes.
        self.withdraw_mark();
        if let Some(key) = self.at {
            self.queues.leave(self.waiter.spec.key_at(key), &self.waiter);
        }
    }
}
