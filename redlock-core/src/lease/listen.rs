//! Listens to the hints of the nodes that a held lock is gone.

use std::sync::{Arc, Weak};

use super::hints::Hints;
use super::holding::{HoldState, Holding};
use super::keeper::LeaseKeeper;
use crate::node::{Node, Notify};

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
        hints.keep(watches);
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
