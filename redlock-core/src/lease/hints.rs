//! The hints of nodes that a held lock is gone.

use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

use crate::node::Subscription;

/// How many hints between two renewals ask the nodes. A store that gives hints without end would otherwise make the process
/// ask all nodes again and again.
const LOOKS_PER_RENEWAL: u8 = 16;

/// The hints of the nodes about one lock.
#[derive(Debug, Default)]
pub(super) struct Hints {
    subscriptions: Mutex<Vec<Subscription>>,
    look: AtomicU8,
    /// How many hints have asked the nodes since the last renewal.
    looks: AtomicU8,
}

/// The states of a look at the nodes.
const IDLE: u8 = 0;
/// The keeper has to ask the nodes.
const REQUESTED: u8 = 1;
/// The keeper asks the nodes.
const RUNNING: u8 = 2;

impl Hints {
    /// Records a hint. Returns whether the keeper does not know yet that it has to ask the nodes.
    pub(super) fn record(&self) -> bool {
        let more = |looks| (looks < LOOKS_PER_RENEWAL).then_some(looks + 1);
        let is_within = self.looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        is_within && self.look.swap(REQUESTED, Ordering::AcqRel) == IDLE
    }

    /// Keeps the subscriptions until the hints end.
    pub(super) fn keep(&self, subscriptions: Vec<Subscription>) {
        *self.subscriptions.lock() = subscriptions;
    }

    /// Begins to ask the nodes. Each hint from now on needs another look.
    pub(super) fn begin_look(&self) {
        self.look.store(RUNNING, Ordering::Release);
    }

    /// Ends the look. Returns false if a hint came meanwhile, so that the nodes have to be asked once more.
    pub(super) fn end_look(&self) -> bool {
        self.look.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Records a renewal, after which as many hints as before may ask the nodes.
    pub(super) fn renewed(&self) {
        self.looks.store(0, Ordering::Relaxed);
    }

    /// Ends all subscriptions.
    pub(super) fn end(&self) {
        let ended = std::mem::take(&mut *self.subscriptions.lock());
        drop(ended);
    }
}
