//! Which server owns which slot.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::node::redis::fencing::{SLOTS, slot};
use crate::node::redis::server::Server;

/// The owner of each slot. It never changes: a new value replaces it.
#[derive(Clone)]
pub(super) struct Owners {
    /// For each slot the index of its owner in `servers`. If one server owns everything, there is one slot.
    by_slot: Box<[u16]>,
    servers: Vec<Arc<Server>>,
}

const NO_OWNER: u16 = u16::MAX;

impl Owners {
    /// Returns a node of one server, or of none yet.
    pub(super) fn of_one(server: Option<Arc<Server>>) -> Self {
        Self { by_slot: [0].into(), servers: server.into_iter().collect() }
    }

    /// Returns a cluster with these owners.
    pub(super) fn of_slots(
        ranges: impl IntoIterator<Item = (RangeInclusive<u16>, Arc<Server>)>,
    ) -> Self {
        let mut owners = Self { by_slot: vec![NO_OWNER; SLOTS].into(), servers: Vec::new() };
        for (slots, server) in ranges {
            owners.set(slots, server);
        }
        owners
    }

    /// Returns the slot of a lock.
    pub(super) fn slot(&self, name: &str) -> usize {
        if self.by_slot.len() == 1 { 0 } else { slot(name) }
    }

    pub(super) fn owner(&self, slot: usize) -> Option<&Arc<Server>> {
        self.servers.get(usize::from(*self.by_slot.get(slot)?))
    }

    /// Changes the owner of some slots.
    pub(super) fn set(&mut self, slots: RangeInclusive<u16>, server: Arc<Server>) {
        let known = self.servers.iter().position(|known| Arc::ptr_eq(known, &server));
        let index = known.unwrap_or(self.servers.len());
        let Ok(owner) = u16::try_from(index) else { return };
        if known.is_none() {
            self.servers.push(server);
        }
        let slots = usize::from(*slots.start())..=usize::from(*slots.end());
        if let Some(owners) = self.by_slot.get_mut(slots) {
            owners.fill(owner);
        }
    }

    /// Returns the former and the new owner of the slots whose owner has changed since an earlier value, each pair once.
    pub(super) fn changes_since<'a>(
        &'a self,
        before: &'a Self,
    ) -> Vec<(Option<&'a Arc<Server>>, &'a Arc<Server>)> {
        let pairs = before.by_slot.iter().zip(&self.by_slot);
        let pairs: BTreeSet<(u16, u16)> = pairs.map(|(former, owner)| (*former, *owner)).collect();
        let owners = pairs.into_iter().filter_map(|(former, owner)| {
            let former = before.servers.get(usize::from(former));
            Some((former, self.servers.get(usize::from(owner))?))
        });
        owners
            .filter(|(former, owner)| !former.is_some_and(|former| Arc::ptr_eq(former, owner)))
            .collect()
    }

    /// Returns whether a server owns slots.
    pub(super) fn has(&self, server: &Arc<Server>) -> bool {
        self.servers.iter().any(|owner| Arc::ptr_eq(owner, server))
    }

    /// Returns the owners of slots, each once.
    pub(super) fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }
}
