//! The subscribers in memory.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use smol_str::SmolStr;

use crate::key::LockKey;
use crate::lock::{Dialect, LockSpec, Token};
use crate::node::{Notify, ProcessId, Subscription};

/// The subscribers of all locks. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Subscribers(Arc<Mutex<HashMap<LockTopic, Vec<Notify>>>>);

/// The name of a lock, its dialect, and the event.
type LockTopic = (SmolStr, Dialect, Topic);

/// The event that a subscriber waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    /// The release of the lock, for a caller that shares it.
    Shared,
    /// The release of the lock, for a caller that does not share it.
    Exclusive,
    /// A turn of the readers. These subscribers are only counted.
    Turn,
    /// A new first ticket in the fair queue, for this process.
    Queue(ProcessId),
    /// The removal of this holder.
    Loss(Token),
}

/// The topics of the subscribers that wait for the lock in any mode.
pub(super) const ANY_MODE: &[Topic] = &[Topic::Shared, Topic::Exclusive];

impl Subscribers {
    pub(super) fn subscribe(&self, spec: &LockSpec, topic: Topic, notify: Notify) -> Subscription {
        let topic = (spec.key().stored_name().clone(), spec.dialect(), topic);
        self.0.lock().entry(topic.clone()).or_default().push(Arc::clone(&notify));
        let subscribers = self.clone();
        Subscription::new(move || {
            let mut by_topic = subscribers.0.lock();
            let Some(of_topic) = by_topic.get_mut(&topic) else { return };
            if let Some(index) = of_topic.iter().position(|other| Arc::ptr_eq(other, &notify)) {
                of_topic.remove(index);
            }
            if of_topic.is_empty() {
                by_topic.remove(&topic);
            }
        })
    }

    /// Returns the subscribers of a lock that wait for one of the topics.
    pub(super) fn of(&self, key: &LockKey, dialect: Dialect, topics: &[Topic]) -> Vec<Notify> {
        let by_topic = self.0.lock();
        let topics = topics.iter().map(|topic| (key.stored_name().clone(), dialect, *topic));
        topics.filter_map(|topic| by_topic.get(&topic)).flatten().cloned().collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().values().map(Vec::len).sum()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
