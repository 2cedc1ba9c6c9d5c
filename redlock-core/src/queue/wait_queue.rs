//! The queue of one key in this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::entry::QueueEntry;
use super::hand_over::{Fairness, HandOverStreak};
use super::outage::Outage;
use super::release_signal::ReleaseSignal;
use crate::lease::Held;
use crate::lock::Mode;

/// The holders of one lock in this process, and the waiters for it, first come, first served.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// Several holders if the modes of their locks are compatible.
    pub(super) holders: SmallVec<[Holder; 1]>,
    pub(super) waiting: VecDeque<Arc<QueueEntry>>,
    /// Present from the first waiter that subscribes until the queue has no waiters.
    pub(super) release_signal: Option<Arc<ReleaseSignal>>,
    pub(super) fairness: Fairness,
    /// The outage in which the waiters are, until a quorum of nodes answers again.
    pub(super) outage: Option<Outage>,
}

/// A holder of a lock in this process.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) held: Arc<Held>,
    /// The scope that shares the lock. `None` without a scope, or until the new holder has accepted a
    /// hand-over.
    pub(super) scope: Option<u64>,
    streak: HandOverStreak,
}

impl Holder {
    pub(super) fn new(held: Arc<Held>, scope: Option<u64>) -> Self {
        Self { held, scope, streak: HandOverStreak::start() }
    }

    pub(super) fn holds(&self, held: &Arc<Held>) -> bool {
        Arc::ptr_eq(&self.held, held)
    }
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty()
    }

    /// Returns the holder of this process that conflicts with a lock of this mode, and the rest of its
    /// validity. Of several holders, returns the one with the most validity left.
    pub(super) fn conflicting(&self, mode: Mode) -> Option<(&Arc<Held>, Duration)> {
        let holders = self.holders.iter().map(|holder| &holder.held);
        let conflicting = holders.filter(|held| !held.attempt().spec().mode().compatible(mode));
        // Each holder's rest is calculated once, because reading the clock is most of the work.
        let remaining = conflicting.map(|held| (held, held.remaining()));
        remaining.filter(|(_, rest)| !rest.is_zero()).max_by_key(|(_, rest)| *rest)
    }

    /// Returns how long a lock of this mode has to wait for this process's own locks.
    pub(super) fn local_conflict_remaining(&self, mode: Mode) -> Option<Duration> {
        self.conflicting(mode).map(|(_, remaining)| remaining)
    }

    /// Adds a holder. Removes holders whose locks conflict with it: the nodes have granted the new lock, so
    /// the old locks are lost.
    pub(super) fn add_holder(&mut self, held: &Arc<Held>, scope: Option<u64>) {
        let mode = held.attempt().spec().mode();
        let is_compatible =
            |holder: &mut Holder| holder.held.attempt().spec().mode().compatible(mode);
        self.holders.retain(is_compatible);
        self.holders.push(Holder::new(Arc::clone(held), scope));
    }

    pub(super) fn holder(&mut self, held: &Arc<Held>) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.holds(held))
    }

    /// Adds a waiter behind those that have waited for longer. Only a caller that has waited in another queue
    /// overtakes others, but not the first waiter while it asks the nodes.
    pub(super) fn add_waiter(&mut self, entry: &Arc<QueueEntry>) {
        let since = entry.options.since;
        let is_before = |other: &Arc<QueueEntry>| other.options.since <= since || other.is_asking();
        let place = self.waiting.iter().rposition(is_before).map_or(0, |before| before + 1);
        self.waiting.insert(place, Arc::clone(entry));
    }

    pub(super) fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.changed.notify_one();
        }
    }

    /// Wakes waiters whose own scope holds the lock now. Otherwise they would wait for themselves.
    pub(super) fn wake_scopes(&self) {
        let is_held = |scope| self.holders.iter().any(|holder| holder.scope == scope);
        let own = self.waiting.iter().filter(|entry| {
            let scope = entry.options.scope;
            scope.is_some() && is_held(scope)
        });
        own.for_each(|entry| entry.changed.notify_one());
    }

    /// Returns the valid lock that the waiter's own scope holds.
    pub(super) fn held_by_scope_of(&self, entry: &QueueEntry) -> Option<&Arc<Held>> {
        let scope = entry.options.scope;
        let mut own = self.holders.iter().filter(|holder| holder.scope == scope);
        own.find(|holder| scope.is_some() && holder.held.is_valid()).map(|holder| &holder.held)
    }

    /// Removes a holder. Returns whether its lock was handed over to the next waiter.
    pub(super) fn hand_over(&mut self, held: &Arc<Held>, node_timeout: Duration) -> bool {
        let Some(index) = self.holders.iter().position(|holder| holder.holds(held)) else {
            return false;
        };
        let Holder { held, streak, .. } = self.holders.remove(index);
        let next = streak.hand_over(&held, &mut self.waiting, &self.fairness, node_timeout);
        let Some((held, streak)) = next else { return false };
        self.holders.push(Holder { held, scope: None, streak });
        // The next waiter is first now, and has to watch the new holder.
        self.wake_first();
        true
    }
}
