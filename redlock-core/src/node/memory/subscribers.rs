//! The subscribers to releases in memory.

use std::collections::HashMap;
use std::sync::Arc;

use super::shared_set::Audience;
use crate::lock::{Dialect, LockName, LockSpec};
use crate::node::Notify;

/// The subscribers to the releases of each lock, and the callers that ask for a turn.
#[derive(Default)]
pub(super) struct Subscribers {
    by_lock: HashMap<(LockName, Dialect), Vec<MemorySubscriber>>,
    turns: HashMap<LockName, usize>,
    next_id: u64,
}

struct MemorySubscriber {
    id: u64,
    /// Whether the subscriber waits for a shared lock.
    is_shared: bool,
    notify: Notify,
}

impl Subscribers {
    /// Adds a subscriber, and returns its id.
    pub(super) fn add(&mut self, spec: &LockSpec, notify: Notify) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let lock = (spec.name().clone(), spec.dialect());
        let subscriber = MemorySubscriber { id, is_shared: spec.mode().is_shared(), notify };
        self.by_lock.entry(lock).or_default().push(subscriber);
        id
    }

    pub(super) fn remove(&mut self, spec: &LockSpec, id: u64) {
        let lock = (spec.name().clone(), spec.dialect());
        if let Some(subscribers) = self.by_lock.get_mut(&lock) {
            subscribers.retain(|subscriber| subscriber.id != id);
            if subscribers.is_empty() {
                self.by_lock.remove(&lock);
            }
        }
    }

    /// Returns the subscribers of a lock that a release concerns.
    pub(super) fn of(&self, name: &LockName, dialect: Dialect, audience: Audience) -> Vec<Notify> {
        let Some(subscribers) = self.by_lock.get(&(name.clone(), dialect)) else {
            return Vec::new();
        };
        let wanted = subscribers.iter().filter(|subscriber| match audience {
            Audience::All => true,
            Audience::Readers => subscriber.is_shared,
            Audience::Writers => !subscriber.is_shared,
        });
        wanted.map(|subscriber| Arc::clone(&subscriber.notify)).collect()
    }

    /// Records that a caller asks for a turn of the readers.
    pub(super) fn request_turn(&mut self, name: &LockName) {
        *self.turns.entry(name.clone()).or_default() += 1;
    }

    /// Records that a caller no longer asks for a turn.
    pub(super) fn withdraw_turn(&mut self, name: &LockName) {
        if let Some(count) = self.turns.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.turns.remove(name);
            }
        }
    }

    /// Returns whether a caller asks for a turn of the readers.
    pub(super) fn wants_turn(&self, name: &LockName) -> bool {
        self.turns.contains_key(name)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_lock.values().map(Vec::len).sum::<usize>() + self.turns.len()
    }
}
