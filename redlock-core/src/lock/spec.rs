//! The specification of a lock.

use std::slice;
use std::sync::Arc;

use super::{Dialect, LockName, Mode};

/// The specification of a lock: its keys on the nodes, its mode, and its dialect.
///
/// A lock of several keys is held on all of them or on none. Its keys are sorted and different.
///
/// Cloning is cheap.
///
/// Two specs with a common key conflict, whatever their modes are. Locks in two dialects with equal keys
/// cannot be held at the same time either, but each is foreign to the other: neither waits for the
/// other, and their releases are published on different channels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockSpec {
    keys: SpecKeys,
    mode: Mode,
}

/// The keys of a lock. Most locks have one key, which is stored without an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SpecKeys {
    One(QueueKey),
    Several(Arc<SeveralKeys>),
}

/// Several keys, in both forms in which they are needed.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SeveralKeys {
    names: Box<[LockName]>,
    queue_keys: Box<[QueueKey]>,
}

/// The key of a wait queue. Callers whose locks conflict wait in one queue, so the mode does not count.
/// Locks of two dialects have two queues: their callers do not wait for each other. A lock of several keys
/// concerns the queue of each of them.
///
/// It is a part of the spec, so that a request which is refused in this process copies nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct QueueKey {
    name: LockName,
    dialect: Dialect,
}

impl LockSpec {
    pub(crate) fn new(name: LockName, mode: Mode, dialect: Dialect) -> Self {
        Self { keys: SpecKeys::One(QueueKey { name, dialect }), mode }
    }

    /// Returns the spec of a lock of several keys, at least one. The names are sorted and different.
    pub(crate) fn of_all(names: Vec<LockName>, mode: Mode, dialect: Dialect) -> Self {
        debug_assert!(names.is_sorted_by(|one, next| one.as_str() < next.as_str()));
        let names = match <[LockName; 1]>::try_from(names) {
            Ok([name]) => return Self::new(name, mode, dialect),
            Err(names) => names,
        };
        let queue_keys =
            names.iter().map(|name| QueueKey { name: name.clone(), dialect }).collect();
        let keys = SpecKeys::Several(Arc::new(SeveralKeys { names: names.into(), queue_keys }));
        Self { keys, mode }
    }

    /// Returns the spec of the lock of one of the keys alone.
    pub(crate) fn of_key(&self, key: &QueueKey) -> Self {
        Self { keys: SpecKeys::One(key.clone()), mode: self.mode }
    }

    /// Returns the same lock in another mode.
    pub(crate) fn with_mode(&self, mode: Mode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// Returns the names of the lock on the nodes: at least one, sorted and different.
    pub fn keys(&self) -> &[LockName] {
        match &self.keys {
            SpecKeys::One(key) => slice::from_ref(&key.name),
            SpecKeys::Several(keys) => &keys.names,
        }
    }

    /// Returns whether the lock has several keys.
    pub(crate) fn has_several_keys(&self) -> bool {
        matches!(self.keys, SpecKeys::Several(_))
    }

    /// The keys of the queues of this process in which callers wait for the lock, in the order of
    /// [`keys`](Self::keys).
    pub(crate) fn queue_keys(&self) -> &[QueueKey] {
        match &self.keys {
            SpecKeys::One(key) => slice::from_ref(key),
            SpecKeys::Several(keys) => &keys.queue_keys,
        }
    }

    /// The key of the queue in which callers wait for the first key.
    pub(crate) fn queue_key(&self) -> &QueueKey {
        &self.queue_keys()[0]
    }

    /// Returns the index of the first key that both locks have.
    pub(crate) fn common_key(&self, other: &Self) -> Option<usize> {
        if let (SpecKeys::One(key), SpecKeys::One(other)) = (&self.keys, &other.keys) {
            return (key == other).then_some(0);
        }
        let others = other.queue_keys();
        self.queue_keys().iter().position(|key| others.contains(key))
    }

    /// Returns the first name of the lock.
    pub fn name(&self) -> &LockName {
        match &self.keys {
            SpecKeys::One(key) => &key.name,
            SpecKeys::Several(keys) => &keys.names[0],
        }
    }

    /// Returns the mode of the lock.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the dialect of the lock.
    pub fn dialect(&self) -> Dialect {
        match &self.keys {
            SpecKeys::One(key) => key.dialect,
            SpecKeys::Several(keys) => keys.queue_keys[0].dialect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;

    fn spec(keys: &[&str]) -> LockSpec {
        let name = |key: &&str| LockName::new("", &LockKey::new(*key).unwrap());
        LockSpec::of_all(keys.iter().map(name).collect(), Mode::Exclusive, Dialect::Plain)
    }

    /// The spec is copied for each operation on each node.
    #[test]
    fn the_place_for_one_key_is_not_larger_because_there_may_be_several() {
        assert_eq!(size_of::<SpecKeys>(), size_of::<QueueKey>());
        assert!(!spec(&["a"]).has_several_keys());
        assert!(spec(&["a", "b"]).has_several_keys());
    }

    #[test]
    fn locks_conflict_at_their_first_common_key() {
        let (one, several) = (spec(&["b"]), spec(&["a", "b", "c"]));
        assert_eq!(one.common_key(&one), Some(0));
        assert_eq!(one.common_key(&several), Some(0));
        assert_eq!(several.common_key(&one), Some(1));
        assert_eq!(several.common_key(&spec(&["b", "c", "d"])), Some(1));
        assert_eq!(several.common_key(&spec(&["d", "e"])), None);
        assert_eq!(one.common_key(&spec(&["a"])), None);
    }
}
