//! The queue of one key in this process.

use std::sync::Arc;
use std::time::Duration;

use super::entry::QueueEntry;
use super::hand_over::Fairness;
use super::holders::{Holder, Holders};
use super::waiters::Waiters;
use crate::clock::Moment;
use crate::lease::Held;
use crate::lock::Mode;

/// The holders of one lock in this process, and the waiters for it, first come, first served.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    pub(super) holders: Holders,
    pub(super) waiting: Waiters,
    pub(super) fairness: Fairness,
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty()
    }

    /// Returns how long a lock of this mode has to wait for this process's own locks.
    pub(super) fn local_conflict_remaining(&self, mode: Mode) -> Option<Duration> {
        self.holders.conflicting(mode).map(|(_, remaining)| remaining)
    }

    /// Returns whether a waiting caller keeps a reader out that makes one attempt beside the readers of this process.
    pub(super) fn has_waiting_writer(&self) -> bool {
        self.waiting.iter().any(|entry| entry.spec.mode() != Mode::SHARED)
    }

    /// Adds a holder, whose lock was granted at `granted`. Removes holders whose locks conflict with it, and are no longer
    /// valid.
    pub(super) fn add_holder(&mut self, held: &Arc<Held>, scope: Option<u64>, granted: Moment) {
        self.holders.remove_incompatible(held.attempt().spec().mode());
        self.holders.push(Holder::new(Arc::clone(held), scope, granted));
    }

    pub(super) fn wake_first(&self) {
        if let Some(first) = self.waiting.first() {
            first.changed.notify_one();
        }
    }

    /// Wakes the waiters of a scope that holds the lock now. Otherwise they would wait for themselves.
    pub(super) fn wake_scope(&self, scope: Option<u64>) {
        if scope.is_some() {
            let own = self.waiting.iter().filter(|entry| entry.options.scope == scope);
            own.for_each(|entry| entry.changed.notify_one());
        }
    }

    /// Calls the readers that stand next to each other behind the first waiter, which the nodes have just granted a lock.
    ///
    /// Stops at a reader that was called before: of a thousand readers that were called together, each one ends here when
    /// it is granted its lock.
    pub(super) fn call_readers(&self) {
        let _ = self.waiting.iter().skip(1).try_for_each(|reader| reader.call().then_some(()));
    }

    /// Wakes the first waiter after this holder has gone, unless it waits for another holder of this process.
    pub(super) fn wake_first_after(&self, held: &Arc<Held>) {
        if let Some(first) = self.waiting.first()
            && (first.watches(held) || self.holders.are_compatible(first.spec.mode()))
        {
            first.changed.notify_one();
        }
    }

    /// Returns the valid lock that the waiter's own scope holds.
    pub(super) fn held_by_scope_of(&self, entry: &QueueEntry) -> Option<&Arc<Held>> {
        let scope = entry.options.scope;
        let mut own = self.holders.iter().filter(|holder| holder.scope == scope);
        own.find(|holder| scope.is_some() && holder.held.is_valid()).map(|holder| &holder.held)
    }

    /// Removes a holder. Returns whether its lock was handed over to the next waiter.
    pub(super) fn hand_over(&mut self, held: &Arc<Held>, node_timeout: Duration) -> bool {
        let Some(Holder { held, streak, .. }) = self.holders.remove(held) else { return false };
        let next = streak.hand_over(&held, &mut self.waiting, &self.fairness, node_timeout);
        let Some((held, streak)) = next else { return false };
        self.holders.push(Holder { held, scope: None, streak });
        // The next waiter is first now, and has to watch the new holder.
        self.wake_first();
        true
    }
}
