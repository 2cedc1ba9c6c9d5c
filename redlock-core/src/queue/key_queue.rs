//! The queue of one key in this process: its holders and its waiters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::hand_over::{Fairness, hand_over};
use super::release_signal::ReleaseSignal;
use super::waiter::{Waiter, WaiterState};
use super::waiting_keys::ListedKey;
use crate::error::Votes;
use crate::lease::Holding;
use crate::lock::{Mode, OwnerLabel};

/// The holders of one lock in this process, and the waiters for it, first come, first served.
#[derive(Debug, Default)]
pub(super) struct KeyQueue {
    /// Several if the modes of their locks are compatible, so that a thousand readers may be among them: each knows its
    /// place.
    holders: SmallVec<[Arc<Holding>; 1]>,
    pub(super) fairness: Fairness,
    /// Most locks are held without waiters, so what only waiters need is allocated when the first one comes.
    waiting: Option<Box<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    waiters: VecDeque<Arc<Waiter>>,
    /// The entry of the key among those for which callers wait.
    _listed: ListedKey,
    /// Present from the first waiter that subscribes until there are no waiters, or until an outage ends.
    signal: Option<Arc<ReleaseSignal>>,
    /// The label of the holder that the nodes have last named to a waiter.
    holder: Option<OwnerLabel>,
    /// The outage in which the waiters are, until a quorum of nodes answers again.
    outage: Option<Outage>,
}

impl Waiting {
    fn new(listed: ListedKey) -> Self {
        let waiters = VecDeque::new();
        Self { waiters, _listed: listed, signal: None, holder: None, outage: None }
    }
}

/// A period in which no quorum of nodes answers. The callers of one key share it, so that the grace period is
/// spent once per outage and not once per waiter.
#[derive(Debug, Clone)]
pub(super) struct Outage {
    /// When the first round without a quorum began.
    pub(super) since: Instant,
    /// The votes of the last round without a quorum.
    pub(super) votes: Votes,
}

/// The holders.
impl KeyQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.is_idle()
    }

    pub(super) fn holders(&self) -> &[Arc<Holding>] {
        &self.holders
    }

    /// Adds a holder. Removes holders whose locks conflict with it, and are no longer valid.
    #[inline]
    pub(super) fn add_holder(&mut self, held: &Arc<Holding>) {
        if !self.is_compatible(held.attempt().spec().mode()) {
            self.holders.clear();
        }
        self.push_holder(Arc::clone(held));
    }

    #[inline]
    fn push_holder(&mut self, held: Arc<Holding>) {
        held.set_index(self.holders.len());
        self.holders.push(held);
    }

    /// Removes a holder. Returns whether it was one.
    #[inline]
    pub(super) fn remove_holder(&mut self, held: &Arc<Holding>) -> bool {
        let is_it = |holder: &Arc<Holding>| Arc::ptr_eq(holder, held);
        // The holder of several keys is among the holders of each, and knows only one of its indices.
        let index = match held.index() {
            index if self.holders.get(index).is_some_and(is_it) => Some(index),
            _ => self.holders.iter().position(is_it),
        };
        let Some(index) = index else { return false };
        self.holders.swap_remove(index);
        if let Some(moved) = self.holders.get(index) {
            moved.set_index(index);
        }
        true
    }

    /// Returns whether a lock of this mode does not have to wait for the holders. Only the nodes count the holders of
    /// permits.
    fn is_compatible(&self, mode: Mode) -> bool {
        // The modes of all holders are compatible.
        self.holders.last().is_none_or(|held| held.attempt().spec().mode().compatible(mode))
    }

    /// Returns the holder for whose end a lock of this mode has to wait, and the rest of its validity.
    pub(super) fn conflict(&self, mode: Mode) -> Option<(&Arc<Holding>, Duration)> {
        // Each holder's rest is calculated once, because reading the clock is most of the work.
        fn valid(held: &Arc<Holding>) -> Option<(&Arc<Holding>, Duration)> {
            let remaining = held.remaining();
            (!remaining.is_zero()).then_some((held, remaining))
        }

        if self.is_compatible(mode) {
            return None;
        }
        self.holders.iter().filter_map(valid).max_by_key(|(_, rest)| *rest)
    }

    /// Removes a holder. Returns whether its lock was handed over to the first waiter, which then leaves the queue.
    pub(super) fn hand_over(&mut self, held: &Arc<Holding>, node_timeout: Duration) -> bool {
        if !self.remove_holder(held) {
            return false;
        }
        let Some(next) = self.first().cloned() else { return false };
        let Some(held) = hand_over(held, &next, &self.fairness, node_timeout) else { return false };
        next.assign(Arc::clone(&held));
        self.push_holder(held);
        self.remove_at(0);
        true
    }
}

/// The waiters.
impl KeyQueue {
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.as_ref().is_none_or(|waiting| waiting.waiters.is_empty())
    }

    pub(super) fn waiters(
        &self,
    ) -> impl ExactSizeIterator<Item = &Arc<Waiter>> + DoubleEndedIterator {
        const NONE: &VecDeque<Arc<Waiter>> = &VecDeque::new();
        self.waiting.as_ref().map_or(NONE, |waiting| &waiting.waiters).iter()
    }

    /// Records the label of the holder that the nodes have named to a waiter.
    pub(super) fn record_holder(&mut self, label: Option<&OwnerLabel>) {
        if let Some(waiting) = &mut self.waiting {
            waiting.holder = label.cloned();
        }
    }

    /// Returns the label of the holder that the nodes have last named to a waiter.
    pub(super) fn named_holder(&self) -> Option<&OwnerLabel> {
        self.waiting.as_ref()?.holder.as_ref()
    }

    fn first(&self) -> Option<&Arc<Waiter>> {
        self.waiting.as_ref()?.waiters.front()
    }

    pub(super) fn is_first(&self, waiter: &Arc<Waiter>) -> bool {
        self.first().is_some_and(|first| Arc::ptr_eq(first, waiter))
    }

    /// Returns the holder of this process because of which its callers keep out a caller that does not queue, and for how long.
    pub(super) fn keeps_out(&self, mode: Mode) -> Option<(&Arc<Holding>, Duration)> {
        self.conflict(mode).or_else(|| {
            // A writer that waits for the readers of this process keeps further readers out, too.
            let is_kept_out = mode == Mode::SHARED
                && self.waiters().any(|waiter| waiter.spec.mode() != Mode::SHARED);
            let reader = self.holders.last().filter(|_| is_kept_out)?;
            Some((reader, reader.remaining())).filter(|(_, rest)| !rest.is_zero())
        })
    }

    /// Adds a waiter behind the waiters that have waited for longer. Only a caller that has waited in another queue
    /// overtakes others, but not the first waiter while it asks the nodes. `list` makes the entry of the key.
    pub(super) fn insert(&mut self, waiter: &Arc<Waiter>, list: impl FnOnce() -> ListedKey) {
        let since = waiter.options.since;
        let is_before = |other: &Arc<Waiter>| other.options.since <= since || other.is_asking();
        let before = self.waiters().rposition(is_before);
        self.insert_at(before.map_or(0, |before| before + 1), waiter, list);
    }

    /// Returns a waiter to the head of the queue after the lock that was handed over to it turned out to be lost.
    pub(super) fn insert_first(&mut self, waiter: &Arc<Waiter>, list: impl FnOnce() -> ListedKey) {
        self.insert_at(0, waiter, list);
    }

    fn insert_at(&mut self, index: usize, waiter: &Arc<Waiter>, list: impl FnOnce() -> ListedKey) {
        let waiters =
            &mut self.waiting.get_or_insert_with(|| Box::new(Waiting::new(list()))).waiters;
        if index == 0
            && let Some(displaced) = waiters.front()
            && displaced.may_take()
            && !displaced.leads_readers()
        {
            // Only the first waiter and the readers of its run ask the nodes.
            displaced.set(WaiterState::Queued);
        }
        let is_called = index
            .checked_sub(1)
            .is_none_or(|before| waiters[before].leads_readers() && waiter.is_reader());
        waiter.set(WaiterState::Queued);
        if is_called {
            waiter.set(WaiterState::Called);
        }
        waiters.insert(index, Arc::clone(waiter));
        // Here and in `remove_at`, so that the gauge has the callers that a snapshot has.
        waiter.options.name.metrics.waits();
    }

    /// Removes a waiter, and calls the waiter that is next then.
    pub(super) fn remove(&mut self, waiter: &Arc<Waiter>) {
        // Most waiters that leave are near the front.
        let index = self.waiters().position(|other| Arc::ptr_eq(other, waiter));
        if let Some(index) = index {
            self.remove_at(index);
        }
    }

    fn remove_at(&mut self, index: usize) {
        let Some(waiting) = &mut self.waiting else { return };
        if let Some(waiter) = waiting.waiters.remove(index) {
            waiter.options.name.metrics.waits_no_longer();
        }
        match index.checked_sub(1) {
            None => {
                waiting.waiters.front().map(|first| first.call());
            }
            // The waiter may have stood between two readers.
            Some(before) if waiting.waiters[before].leads_readers() => self.call_readers(index),
            Some(_) => {}
        }
    }

    /// Calls the readers that stand next to each other behind the first waiter, when the nodes have granted a reader the lock.
    pub(super) fn call_run(&self) {
        if self.first().is_some_and(|first| first.is_reader()) {
            self.call_readers(1);
        }
    }

    /// Calls the readers that stand next to each other from this index on.
    ///
    /// Stops at a reader that was called before: of a thousand readers that were called together, each one ends here when
    /// it is granted its lock.
    fn call_readers(&self, index: usize) {
        let mut readers = self.waiters().skip(index);
        let _ = readers.try_for_each(|next| (next.is_reader() && next.call()).then_some(()));
    }

    /// Notifies the first waiter, so that it looks at the holders again.
    pub(super) fn wake_first(&self) {
        if let Some(first) = self.first() {
            first.changed.notify_one();
        }
    }

    /// Notifies the first waiter of a new holder, unless it waits for another holder in any case.
    pub(super) fn wake_first_beside(&self, mode: Mode) {
        // A writer that the readers keep out asks the nodes now and then.
        if let Some(first) = self.first()
            && (mode == Mode::Exclusive || first.spec.mode() != Mode::Exclusive)
        {
            first.changed.notify_one();
        }
    }

    /// Notifies the first waiter after this holder has gone, unless it waits for another holder of this process.
    pub(super) fn wake_first_after(&self, held: &Arc<Holding>) {
        if let Some(first) = self.first()
            && (first.watches(held) || self.is_compatible(first.spec.mode()))
        {
            first.changed.notify_one();
        }
    }

    /// Notifies the waiters of a scope that holds the lock now. Otherwise they would wait for themselves.
    pub(super) fn wake_scope(&self, scope: Option<u64>) {
        if scope.is_some() {
            let own = self.waiters().filter(|waiter| waiter.options.caller.scope == scope);
            own.for_each(|waiter| waiter.changed.notify_one());
        }
    }
}

/// The state that the waiters share.
impl KeyQueue {
    /// Returns whether a waiter of this process has subscribed to the releases, whether the subscription is in effect or not.
    pub(super) fn subscribes(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.signal.is_some())
    }

    /// Returns the signal of the releases that concern this mode, if its subscription is in effect.
    pub(super) fn signal(&self, mode: Mode) -> Option<&Arc<ReleaseSignal>> {
        let signal = self.waiting.as_ref()?.signal.as_ref();
        signal.filter(|signal| signal.is_in_effect() && signal.serves(mode))
    }

    pub(super) fn set_signal(&mut self, signal: Arc<ReleaseSignal>) {
        if let Some(waiting) = &mut self.waiting {
            waiting.signal = Some(signal);
        }
    }

    pub(super) fn outage(&self) -> Option<&Outage> {
        self.waiting.as_ref()?.outage.as_ref()
    }

    /// Records that a round, which began at `begun`, found no quorum. Returns when the outage began.
    pub(super) fn record_outage(&mut self, begun: Instant, votes: &Votes) -> Instant {
        let since = self.outage().map_or(begun, |outage| outage.since);
        if let Some(waiting) = &mut self.waiting {
            waiting.outage = Some(Outage { since, votes: votes.clone() });
        }
        since
    }

    /// Ends the outage, because a quorum of nodes answers. Returns whether there was one. The broken connections of the outage
    /// may have ended the subscription, and releases may have passed unnoticed, so the next waiter subscribes again.
    pub(super) fn end_outage(&mut self) -> bool {
        let Some(waiting) = &mut self.waiting else { return false };
        let was_outage = waiting.outage.take().is_some();
        if was_outage {
            waiting.signal = None;
        }
        was_outage
    }

    /// Ends an outage that began before the conductor of the fair queue answered. The caller is awake, and the only waiter
    /// that could ask.
    pub(super) fn end_outage_before(&mut self, answered: Instant) {
        if self.outage().is_some_and(|outage| outage.since < answered) {
            self.end_outage();
        }
    }

    /// Ends the subscription and the outage if there are no waiters.
    pub(super) fn end_if_idle(&mut self) {
        if self.is_idle() {
            self.waiting = None;
        }
    }
}
