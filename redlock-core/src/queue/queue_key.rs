//! What tells wait queues apart.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::lock::LockSpec;

/// The key of a wait queue. Callers whose locks conflict wait in one queue, so the mode does not count.
/// Locks of two dialects have two queues: their callers do not wait for each other.
#[derive(Debug, Clone)]
pub(super) struct QueueKey(Arc<LockSpec>);

impl QueueKey {
    pub(super) fn new(spec: &Arc<LockSpec>) -> Self {
        Self(Arc::clone(spec))
    }
}

impl PartialEq for QueueKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.keys() == other.0.keys() && self.0.dialect() == other.0.dialect()
    }
}

impl Eq for QueueKey {}

impl Hash for QueueKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.keys().hash(state);
        self.0.dialect().hash(state);
    }
}
