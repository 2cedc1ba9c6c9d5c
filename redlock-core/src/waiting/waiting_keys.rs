//! The keys for which callers of this process wait.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::key::LockKey;

/// So many slots stay when nobody waits.
const FEW: usize = 64;

/// The keys for which callers of this process wait, so that a reader of all of them does not look at the queues of held locks.
#[derive(Debug, Default)]
pub(super) struct WaitingKeys(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    /// A key stays in its slot, so that a reader of one part after another misses none.
    keys: Vec<Option<LockKey>>,
    free: Vec<usize>,
}

/// The entry of a key. Dropping it removes the key.
#[derive(Debug)]
pub(super) struct ListedKey {
    keys: Arc<WaitingKeys>,
    slot: usize,
}

impl WaitingKeys {
    /// Adds a key.
    pub(super) fn list(self: &Arc<Self>, key: &LockKey) -> ListedKey {
        let Slots { keys, free } = &mut *self.0.lock();
        let slot = free.pop().unwrap_or(keys.len());
        match keys.get_mut(slot) {
            Some(empty) => *empty = Some(key.clone()),
            None => keys.push(Some(key.clone())),
        }
        ListedKey { keys: Arc::clone(self), slot }
    }

    /// Returns the keys in `count` slots from this one on; `None` behind the last slot.
    pub(super) fn part(&self, from: usize, count: usize) -> Option<Vec<LockKey>> {
        let slots = self.0.lock();
        let part = slots.keys.get(from..)?;
        let part = &part[..count.min(part.len())];
        (!part.is_empty()).then(|| part.iter().flatten().cloned().collect())
    }
}

impl Drop for ListedKey {
    fn drop(&mut self) {
        let mut slots = self.keys.0.lock();
        slots.keys[self.slot] = None;
        slots.free.push(self.slot);
        // The memory of a flood of keys does not stay. A few slots do, so that a caller that waits alone allocates nothing.
        if slots.keys.len() > FEW && slots.free.len() == slots.keys.len() {
            *slots = Slots::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(keys: &WaitingKeys, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        for from in (0..).step_by(count) {
            let Some(part) = keys.part(from, count) else { break };
            assert!(part.len() <= count);
            all.extend(part.iter().map(|key| key.as_str().to_owned()));
        }
        all
    }

    #[test]
    fn each_part_has_a_few_keys_and_a_key_keeps_its_slot() {
        let keys = Arc::new(WaitingKeys::default());
        let names = |numbers: std::ops::Range<usize>| numbers.map(|number| number.to_string());
        let mut listed: Vec<_> =
            names(0..10).map(|name| keys.list(&LockKey::new(name).unwrap())).collect();
        assert_eq!(all(&keys, 3), names(0..10).collect::<Vec<_>>());
        listed.drain(..5);
        assert_eq!(all(&keys, 3), names(5..10).collect::<Vec<_>>());
        listed.push(keys.list(&LockKey::new("10").unwrap()));
        assert_eq!(keys.part(0, 5).unwrap().len(), 1, "a free slot is used again");
        assert_eq!(all(&keys, 100).len(), 6);
    }

    #[test]
    fn no_memory_stays_when_nobody_waits() {
        let keys = Arc::new(WaitingKeys::default());
        drop([(); 1000].map(|()| keys.list(&LockKey::new("a").unwrap())));
        assert_eq!(keys.0.lock().keys.capacity(), 0);
        assert!(keys.part(0, 1).is_none());
    }
}
