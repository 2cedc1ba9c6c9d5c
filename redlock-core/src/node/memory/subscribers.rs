//! The subscribers to releases in memory.

use std::collections::HashMap;
use std::sync::Arc;

use smol_str::SmolStr;

use super::shared_set::Audience;
use crate::lock::{ByDialect, Dialect, LockSpec};
use crate::node::Notify;

/// The subscribers to the releases of each lock, and the callers that ask for a turn.
#[derive(Default)]
pub(super) struct Subscribers {
    by_name: ByDialect<HashMap<SmolStr, Vec<MemorySubscriber>>>,
    turns: HashMap<SmolStr, usize>,
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
        let name = spec.key().stored_name().clone();
        let subscriber = MemorySubscriber { id, is_shared: spec.mode().is_shared(), notify };
        self.by_name[spec.dialect().index()].entry(name).or_default().push(subscriber);
        id
    }

    pub(super) fn remove(&mut self, spec: &LockSpec, id: u64) {
        let by_name = &mut self.by_name[spec.dialect().index()];
        if let Some(subscribers) = by_name.get_mut(spec.name()) {
            subscribers.retain(|subscriber| subscriber.id != id);
            if subscribers.is_empty() {
                by_name.remove(spec.name());
            }
        }
    }

    /// Returns the subscribers of a lock that a release concerns.
    pub(super) fn of(&self, name: &str, dialect: Dialect, audience: Audience) -> Vec<Notify> {
        let Some(subscribers) = self.by_name[dialect.index()].get(name) else { return Vec::new() };
        let wanted = subscribers.iter().filter(|subscriber| match audience {
            Audience::All => true,
            Audience::Readers => subscriber.is_shared,
            Audience::Writers => !subscriber.is_shared,
        });
        wanted.map(|subscriber| Arc::clone(&subscriber.notify)).collect()
    }

    /// Records that a caller asks for a turn of the readers.
    pub(super) fn request_turn(&mut self, name: &str) {
        *self.turns.entry(name.into()).or_default() += 1;
    }

    /// Records that a caller no longer asks for a turn.
    pub(super) fn withdraw_turn(&mut self, name: &str) {
        if let Some(count) = self.turns.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.turns.remove(name);
            }
        }
    }

    /// Returns whether a caller asks for a turn of the readers.
    pub(super) fn wants_turn(&self, name: &str) -> bool {
        self.turns.contains_key(name)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_name.iter().flat_map(HashMap::values).map(Vec::len).sum::<usize>()
            + self.turns.len()
    }
}
