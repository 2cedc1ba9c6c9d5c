//! The callers that wait for one key in this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::entry::QueueEntry;
use super::hand_over::{Fairness, HandOverStreak};
use super::outage::Outage;
use super::release_signal::ReleaseSignal;
use crate::lease::Held;

/// Who holds one lock in this process, and who waits for it, first come first served.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    pub(super) holder: Option<Holder>,
    pub(super) waiting: VecDeque<Arc<QueueEntry>>,
    /// Kept for as long as somebody waits.
    pub(super) release_signal: Option<Arc<ReleaseSignal>>,
    pub(super) fairness: Fairness,
    /// The outage that the waiters have met, until a quorum of nodes answers again.
    pub(super) outage: Option<Outage>,
}

/// The holder of a lock in this process.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) held: Arc<Held>,
    /// The scope that shares it; none has what was handed over and not been taken yet.
    pub(super) scope: Option<u64>,
    streak: HandOverStreak,
}

impl Holder {
    pub(super) fn new(held: Arc<Held>, scope: Option<u64>) -> Self {
        Self { held, scope, streak: HandOverStreak::start() }
    }

    pub(super) fn is(&self, held: &Arc<Held>) -> bool {
        Arc::ptr_eq(&self.held, held)
    }
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.holder.is_none() && self.waiting.is_empty()
    }

    /// What is left of the validity of this process's own lock.
    pub(super) fn held_for(&self) -> Option<Duration> {
        let remaining = self.holder.as_ref()?.held.remaining();
        (!remaining.is_zero()).then_some(remaining)
    }

    pub(super) fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.changed.notify_one();
        }
    }

    /// Wakes those who wait for what their own scope holds now: they would wait for themselves.
    pub(super) fn wake_scope(&self) {
        let Some(Holder { scope: Some(scope), .. }) = self.holder else { return };
        let own = self.waiting.iter().filter(|entry| entry.options.scope == Some(scope));
        own.for_each(|entry| entry.changed.notify_one());
    }

    /// What the scope of a caller holds.
    pub(super) fn held_by_scope_of(&self, entry: &QueueEntry) -> Option<&Arc<Held>> {
        let holder = self.holder.as_ref()?;
        let own = holder.scope.is_some() && holder.scope == entry.options.scope;
        (own && holder.held.is_valid()).then_some(&holder.held)
    }

    /// Ends the holding in this process. Returns whether the lock was handed over to the next waiter.
    pub(super) fn hand_over(&mut self, node_timeout: Duration) -> bool {
        let Some(Holder { held, streak, .. }) = self.holder.take() else { return false };
        let next = streak.hand_over(&held, &mut self.waiting, &self.fairness, node_timeout);
        let Some((held, streak)) = next else { return false };
        self.holder = Some(Holder { held, scope: None, streak });
        // The waiter behind the new holder is the first now, and has to watch the new holder.
        self.wake_first();
        true
    }
}
