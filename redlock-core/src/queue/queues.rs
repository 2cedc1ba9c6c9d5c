//! All wait queues of a manager.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, OccupiedEntry};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::entry::{EntryState, QueueEntry};
use super::wait_queue::WaitQueue;
use crate::ballot::Ballot;
use crate::lease::Held;
use crate::lock::{LockSpec, QueueKey};

/// Who holds and who waits in this process, for every key.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(super) by_key: Mutex<HashMap<QueueKey, WaitQueue>>,
    pub(super) ballot: Ballot,
    pub(super) max_waiters: usize,
    /// How long waiters keep their places while no quorum of nodes answers.
    pub(super) outage_grace: Duration,
    closed: AtomicBool,
}

/// The permit to release a lock on the nodes, because it was not handed over. Lets the next waiter ask
/// the nodes when dropped, released or not.
#[must_use]
pub(crate) struct ReleasePermit<'a> {
    queues: &'a Queues,
    held: &'a Arc<Held>,
    /// How many processes were notified of the release.
    listeners: usize,
}

impl ReleasePermit<'_> {
    /// Notes that the lock was released, and how many processes were notified.
    pub(crate) fn released(mut self, listeners: usize) {
        self.listeners = listeners;
    }
}

impl Queues {
    pub(crate) fn new(ballot: Ballot, max_waiters: usize, outage_grace: Duration) -> Self {
        let (by_key, closed) = (Mutex::default(), AtomicBool::new(false));
        Self { by_key, ballot, max_waiters, outage_grace, closed }
    }

    /// What is left of the validity of a lock that this process holds.
    pub(crate) fn held_for(&self, spec: &LockSpec) -> Option<Duration> {
        self.by_key.lock().get(spec.queue_key())?.held_for(spec.mode())
    }

    /// Ends all waiting; returns what is held in this process, also what was handed over and has not
    /// been taken yet.
    pub(crate) fn close(&self) -> Vec<Arc<Held>> {
        self.closed.store(true, Ordering::SeqCst);
        let by_key = self.by_key.lock();
        for queue in by_key.values() {
            queue.waiting.iter().for_each(|entry| entry.changed.notify_one());
        }
        let holders = by_key.values().flat_map(|queue| &queue.holders);
        holders.map(|holder| Arc::clone(&holder.held)).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Notes that this process holds a lock.
    pub(crate) fn hold(&self, held: &Arc<Held>, scope: Option<u64>) {
        let mut by_key = self.by_key.lock();
        let queue = by_key.entry(held.attempt().spec().queue_key().clone()).or_default();
        queue.hold(held, scope);
        // A quorum has granted it.
        queue.outage = None;
        queue.wake_first();
        queue.wake_scopes();
    }

    /// Notes that a lock that was handed over is held by now, and that its scope shares it from now
    /// on. Not before: whoever was handed it may go without having taken it.
    pub(crate) fn take_over(&self, held: &Arc<Held>, scope: Option<u64>) {
        let mut by_key = self.by_key.lock();
        let Some(queue) = by_key.get_mut(held.attempt().spec().queue_key()) else { return };
        if let Some(holder) = queue.holder(held) {
            holder.scope = scope;
            queue.wake_scopes();
        }
    }

    /// Puts a caller back to the head of the queue: what it was handed has turned out to be lost.
    pub(super) fn rejoin(&self, key: &QueueKey, entry: &Arc<QueueEntry>) {
        let mut by_key = self.by_key.lock();
        by_key.entry(key.clone()).or_default().waiting.push_front(Arc::clone(entry));
    }

    /// Gives a lock that is no longer held to the next waiter; `None` says that it was handed
    /// over and nothing is left to do.
    pub(crate) fn pass_on<'a>(&'a self, held: &'a Arc<Held>) -> Option<ReleasePermit<'a>> {
        let mut by_key = self.by_key.lock();
        if let Some(queue) = by_key.get_mut(held.attempt().spec().queue_key())
            && queue.hand_over(held, self.ballot.node_timeout)
        {
            return None;
        }
        Some(ReleasePermit { queues: self, held, listeners: 0 })
    }

    /// A caller leaves its place, with or without the lock.
    pub(super) fn leave(&self, key: &QueueKey, entry: &Arc<QueueEntry>) {
        let mut by_key = self.by_key.lock();
        if let Entry::Occupied(mut occupied) = by_key.entry(key.clone()) {
            let queue = occupied.get_mut();
            let was_first = queue.waiting.front().is_some_and(|first| Arc::ptr_eq(first, entry));
            queue.waiting.retain(|other| !Arc::ptr_eq(other, entry));
            if was_first {
                queue.wake_first();
            }
            tidy(occupied);
        }
        drop(by_key);
        let state = std::mem::replace(&mut *entry.state.lock(), EntryState::Waiting);
        if let EntryState::HandedOver(held) = state {
            self.give_up(&held);
        }
    }

    /// Gives up a lock without waiting for it.
    pub(crate) fn give_up(&self, held: &Arc<Held>) {
        if let Some(permit) = self.pass_on(held) {
            self.ballot.release_in_background(Arc::clone(held.attempt()), held.runs_out());
            drop(permit);
        }
    }

    #[cfg(any(test, feature = "unstable-simulation"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cfg(any(test, feature = "unstable-simulation"))]
    pub(crate) fn len(&self) -> usize {
        self.by_key.lock().len()
    }
}

/// Stops listening where nobody waits, and removes a queue without waiters and holder.
fn tidy(mut entry: OccupiedEntry<'_, QueueKey, WaitQueue>) {
    let queue = entry.get_mut();
    if queue.waiting.is_empty() {
        queue.release_signal = None;
        queue.outage = None;
    }
    if queue.is_empty() {
        entry.remove();
    }
}

impl Drop for ReleasePermit<'_> {
    fn drop(&mut self) {
        let key = self.held.attempt().spec().queue_key().clone();
        let mut by_key = self.queues.by_key.lock();
        let Entry::Occupied(mut entry) = by_key.entry(key) else { return };
        let queue = entry.get_mut();
        queue.holders.retain(|holder| !holder.is(self.held));
        let this_process_listens = queue.release_signal.is_some();
        queue.fairness.note_release(self.listeners, this_process_listens);
        queue.wake_first();
        tidy(entry);
    }
}
