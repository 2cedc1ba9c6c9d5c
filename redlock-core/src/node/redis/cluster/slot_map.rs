//! Which shard owns which slot.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::node::redis::RedisNode;
use crate::node::redis::fencing::SLOTS;

/// The owner of each slot. A map never changes: a new map replaces it.
#[derive(Clone)]
pub(super) struct SlotMap {
    /// For each slot the index of its owner in `shards`.
    owners: Box<[u16]>,
    shards: Vec<Arc<RedisNode>>,
}

const NO_OWNER: u16 = u16::MAX;

impl Default for SlotMap {
    fn default() -> Self {
        Self { owners: vec![NO_OWNER; SLOTS].into(), shards: Vec::new() }
    }
}

impl SlotMap {
    /// Returns the map with these owners.
    pub(super) fn of(
        ranges: impl IntoIterator<Item = (RangeInclusive<u16>, Arc<RedisNode>)>,
    ) -> Self {
        let mut map = Self::default();
        for (slots, shard) in ranges {
            map.set(slots, shard);
        }
        map
    }

    /// Returns the shard that owns a slot.
    pub(super) fn owner(&self, slot: usize) -> Option<&Arc<RedisNode>> {
        self.shards.get(usize::from(*self.owners.get(slot)?))
    }

    /// Changes the owner of some slots.
    pub(super) fn set(&mut self, slots: RangeInclusive<u16>, shard: Arc<RedisNode>) {
        let known = self.shards.iter().position(|known| Arc::ptr_eq(known, &shard));
        let index = known.unwrap_or(self.shards.len());
        let Ok(owner) = u16::try_from(index) else { return };
        if known.is_none() {
            self.shards.push(shard);
        }
        let slots = usize::from(*slots.start())..=usize::from(*slots.end());
        if let Some(owners) = self.owners.get_mut(slots) {
            owners.fill(owner);
        }
    }

    /// Returns the former and the new owner of the slots whose owner has changed since an earlier map, each pair once.
    pub(super) fn changes_since<'a>(
        &'a self,
        before: &'a Self,
    ) -> Vec<(Option<&'a Arc<RedisNode>>, &'a Arc<RedisNode>)> {
        let pairs = before.owners.iter().zip(&self.owners).map(|(former, owner)| (*former, *owner));
        let pairs: BTreeSet<(u16, u16)> = pairs.collect();
        let owners = pairs.into_iter().filter_map(|(former, owner)| {
            let former = before.shards.get(usize::from(former));
            Some((former, self.shards.get(usize::from(owner))?))
        });
        owners
            .filter(|(former, owner)| !former.is_some_and(|former| Arc::ptr_eq(former, owner)))
            .collect()
    }

    /// Returns whether a shard owns slots.
    pub(super) fn has(&self, shard: &Arc<RedisNode>) -> bool {
        self.shards.iter().any(|owner| Arc::ptr_eq(owner, shard))
    }

    /// Returns the owners of slots, each once.
    pub(super) fn shards(&self) -> &[Arc<RedisNode>] {
        &self.shards
    }
}
