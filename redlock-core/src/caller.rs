//! The caller of an acquisition, as far as it is known.

use tokio::task::{Id, try_id};

/// The scope and the Tokio task in which a caller acquires a lock. The code outside of spawned tasks, such as that of
/// `block_on`, counts as one task.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Caller {
    /// The id of the scope, if there is one.
    pub(crate) scope: Option<usize>,
    task: Option<Id>,
}

impl Caller {
    /// Returns the caller that runs in the present task, in this scope.
    pub(crate) fn in_scope(scope: Option<usize>) -> Self {
        Self { scope, task: try_id() }
    }

    /// Returns whether both acquire in the same scope or in the same task.
    pub(crate) fn is_same(self, other: Self) -> bool {
        self.task == other.task || self.scope.is_some() && self.scope == other.scope
    }
}
