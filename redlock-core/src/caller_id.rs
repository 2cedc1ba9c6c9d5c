//! The caller of an acquisition, as far as it is known.

use tokio::task::{Id, try_id};

/// The scope and the Tokio task in which a caller acquires a lock. The code outside of spawned tasks, such as that of
/// `block_on`, counts as one task.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallerId {
    /// The id of the scope, if there is one.
    pub(crate) scope: Option<u64>,
    task: Option<Id>,
}

impl CallerId {
    /// Returns the caller that runs in the present task, in this scope.
    pub(crate) fn in_scope(scope: Option<u64>) -> Self {
        Self { scope, task: try_id() }
    }

    /// Returns whether both acquire in the same scope, or in the same task if one of them has no scope. A task may serve
    /// one request after another, each in a scope of its own.
    pub(crate) fn is_same(self, other: Self) -> bool {
        match (self.scope, other.scope) {
            (Some(one), Some(other)) => one == other,
            _ => self.task == other.task,
        }
    }
}
