//! The specification of a lock.

use super::{Dialect, LockName, Mode};

/// The specification of a lock: its keys on the nodes, its mode, and its dialect.
///
/// Cloning is cheap.
///
/// Two specs with equal keys conflict, whatever their modes are. Locks in two dialects with equal keys
/// cannot be held at the same time either, but each is foreign to the other: neither waits for the
/// other, and their releases are published on different channels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockSpec {
    queue_key: QueueKey,
    mode: Mode,
}

/// The key of a wait queue. Callers whose locks conflict wait in one queue, so the mode does not count.
/// Locks of two dialects have two queues: their callers do not wait for each other.
///
/// It is a part of the spec, so that a request which is refused in this process copies nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct QueueKey {
    keys: [LockName; 1],
    dialect: Dialect,
}

impl LockSpec {
    pub(crate) fn new(name: LockName, mode: Mode, dialect: Dialect) -> Self {
        Self { queue_key: QueueKey { keys: [name], dialect }, mode }
    }

    /// Returns the same lock in another mode.
    pub(crate) fn with_mode(&self, mode: Mode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// Returns the names of the lock on the nodes: at least one.
    pub fn keys(&self) -> &[LockName] {
        &self.queue_key.keys
    }

    /// The key of the queue of this process in which callers wait for the lock.
    pub(crate) fn queue_key(&self) -> &QueueKey {
        &self.queue_key
    }

    /// Returns the first name of the lock.
    pub fn name(&self) -> &LockName {
        &self.queue_key.keys[0]
    }

    /// Returns the mode of the lock.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the dialect of the lock.
    pub fn dialect(&self) -> Dialect {
        self.queue_key.dialect
    }
}
