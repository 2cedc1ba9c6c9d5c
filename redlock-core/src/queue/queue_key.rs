//! The key that identifies a wait queue.

use crate::lock::{Dialect, LockName, LockSpec};

/// The key of a wait queue. Callers whose locks conflict wait in one queue, so the mode is not part of the
/// key. Locks of two dialects have separate queues: their callers do not wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct QueueKey {
    name: LockName,
    dialect: Dialect,
}

impl QueueKey {
    pub(super) fn new(spec: &LockSpec) -> Self {
        Self { name: spec.name().clone(), dialect: spec.dialect() }
    }
}
