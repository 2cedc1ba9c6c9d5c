//! The queue of one key in this process.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

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
    /// Cancelled when the reader that makes one attempt, and asks the nodes, has its reply.
    pub(super) reader_enquiry: Option<CancellationToken>,
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty() && self.reader_enquiry.is_none()
    }

    /// Returns how long a lock of this mode has to wait for this process's own locks.
    pub(super) fn local_conflict_remaining(&self, mode: Mode) -> Option<Duration> {
        self.holders.conflicting(mode).map(|(_, remaining)| remaining)
    }

    /// Adds a holder, whose lock was granted at `granted`. Removes holders whose locks conflict with it: the nodes have
    /// granted the new lock, so the old locks are lost.
    pub(super) fn add_holder(&mut self, held: &Arc<Held>, scope: Option<u64>, granted: Moment) {
        self.holders.remove_incompatible(held.attempt().mode());
        self.holders.push(Holder::new(Arc::clone(held), scope, granted));
    }

    pub(super) fn wake_first(&self) {
        if let Some(first) = self.waiting.first() {
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
        let is_shared = self.holders.is_shared(held);
        let removed = self.holders.remove(held);
        if is_shared {
            return true;
        }
        let Some(Holder { held, streak, .. }) = removed else { return false };
        let next = streak.hand_over(&held, &mut self.waiting, &self.fairness, node_timeout);
        let Some((held, streak)) = next else { return false };
        self.holders.push(Holder { held, scope: None, streak });
        // The next waiter is first now, and has to watch the new holder.
        self.wake_first();
        true
    }
}
