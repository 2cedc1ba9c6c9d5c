//! The queue of one key in this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio_util::sync::CancellationToken;

use super::entry::QueueEntry;
use super::hand_over::{Fairness, HandOverStreak};
use super::outage::Outage;
use super::release_signal::ReleaseSignal;
use crate::clock::Moment;
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
    /// Cancelled when the reader that makes one attempt, and asks the nodes, has its reply.
    pub(super) reader_enquiry: Option<CancellationToken>,
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
    pub(super) fn new(held: Arc<Held>, scope: Option<u64>, granted: Moment) -> Self {
        Self { held, scope, streak: HandOverStreak::start(granted) }
    }

    pub(super) fn holds(&self, held: &Arc<Held>) -> bool {
        Arc::ptr_eq(&self.held, held)
    }
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty() && self.reader_enquiry.is_none()
    }

    /// Returns the holder of this process for whose end a lock of this mode has to wait, and the rest of its
    /// validity.
    pub(super) fn conflicting(&self, mode: Mode) -> Option<(&Arc<Held>, Duration)> {
        // Each holder's rest is calculated once, because reading the clock is most of the work.
        fn valid(held: &Arc<Held>) -> Option<(&Arc<Held>, Duration)> {
            let remaining = held.remaining();
            (!remaining.is_zero()).then_some((held, remaining))
        }

        let holders = self.holders.iter().map(|holder| &holder.held);
        let conflicting = holders.clone().filter(|held| !held.attempt().mode().compatible(mode));
        let longest = conflicting.filter_map(valid).max_by_key(|(_, rest)| *rest);
        let Mode::Shared { permits: Some(permits) } = mode else { return longest };
        let permits = usize::try_from(permits.get()).unwrap_or(usize::MAX);
        if longest.is_some() || self.holders.len() < permits {
            return longest;
        }
        // The permit of this holder ends first that leaves fewer holders than permits.
        let mut taken: Vec<_> = holders.filter_map(valid).collect();
        taken.sort_unstable_by_key(|(_, rest)| *rest);
        taken.len().checked_sub(permits).map(|next| taken[next])
    }

    /// Returns how long a lock of this mode has to wait for this process's own locks.
    pub(super) fn local_conflict_remaining(&self, mode: Mode) -> Option<Duration> {
        self.conflicting(mode).map(|(_, remaining)| remaining)
    }

    /// Adds a holder, whose lock was granted at `granted`. Removes holders whose locks conflict with it: the nodes have granted the new lock, so
    /// the old locks are lost.
    pub(super) fn add_holder(&mut self, held: &Arc<Held>, scope: Option<u64>, granted: Moment) {
        let mode = held.attempt().mode();
        let is_compatible = |holder: &mut Holder| holder.held.attempt().mode().compatible(mode);
        self.holders.retain(is_compatible);
        self.holders.push(Holder::new(Arc::clone(held), scope, granted));
    }

    pub(super) fn holder(&mut self, held: &Arc<Held>) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.holds(held))
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

    /// Removes a holder. Returns whether its lock stays held in this process: others share it, or it was handed over
    /// to the next waiter.
    pub(super) fn hand_over(&mut self, held: &Arc<Held>, node_timeout: Duration) -> bool {
        let Some(index) = self.holders.iter().position(|holder| holder.holds(held)) else {
            return false;
        };
        let is_shared = |holder: &Holder| {
            Arc::ptr_eq(holder.held.attempt(), held.attempt()) && !holder.holds(held)
        };
        if held.attempt().mode().is_shared() && self.holders.iter().any(is_shared) {
            self.holders.swap_remove(index);
            return true;
        }
        let Holder { held, streak, .. } = self.holders.remove(index);
        let next = streak.hand_over(&held, &mut self.waiting, &self.fairness, node_timeout);
        let Some((held, streak)) = next else { return false };
        self.holders.push(Holder { held, scope: None, streak });
        // The next waiter is first now, and has to watch the new holder.
        self.wake_first();
        true
    }
}
