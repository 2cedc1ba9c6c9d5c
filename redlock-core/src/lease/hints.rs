//! The hints of nodes that a held lock is gone.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::holding::{HoldState, Holding};
use super::keeper::LeaseKeeper;
use crate::node::{Node, Notify, Subscription};

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
    fn record(&self) -> bool {
        let more = |looks| (looks < LOOKS_PER_RENEWAL).then_some(looks + 1);
        let is_within = self.looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        is_within && self.look.swap(REQUESTED, Ordering::AcqRel) == IDLE
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

impl LeaseKeeper {
    /// Listens to the hints of the nodes that a lock is gone, from the first call to the end of its holding. The key of a
    /// shared lock changes with each of its holders, so only an exclusive lock has hints.
    pub(crate) fn listen(self: &Arc<Self>, held: &Arc<Holding>, nodes: &[Arc<dyn Node>]) {
        let attempt = held.attempt();
        if attempt.spec().mode().is_shared() || held.state() != HoldState::Held {
            return;
        }
        let Some(hints) = held.begin_hints() else { return };
        let notify: Notify = {
            let (keeper, held) = (Arc::downgrade(self), Arc::downgrade(held));
            Arc::new(move || hint(&keeper, &held))
        };
        let offers = nodes.iter().filter_map(|node| node.loss_hints());
        let watches: Vec<_> = offers
            .map(|hints| hints.watch(attempt.spec(), attempt.token(), Arc::clone(&notify)))
            .collect();
        *hints.subscriptions.lock() = watches;
        // The holding may have ended meanwhile.
        if held.state() != HoldState::Held || attempt.is_downgraded() {
            hints.end();
        }
    }
}

fn hint(keeper: &Weak<LeaseKeeper>, held: &Weak<Holding>) {
    if let (Some(keeper), Some(held)) = (keeper.upgrade(), held.upgrade())
        && held.state() == HoldState::Held
        && held.hints().is_some_and(Hints::record)
    {
        keeper.look_at(held);
    }
}
