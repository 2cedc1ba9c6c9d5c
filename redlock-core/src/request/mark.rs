//! The mark of a caller that waits for an exclusive lock while others share it.

use std::sync::Arc;

use crate::context::Context;
use crate::lock::{LockSpec, WriterMark};

/// The mark of a caller that waits for an exclusive lock. When dropped, withdraws the mark from the nodes that may have
/// it.
pub(super) struct Mark<'a> {
    context: &'a Arc<Context>,
    spec: &'a LockSpec,
    mark: WriterMark,
    is_set: bool,
}

impl<'a> Mark<'a> {
    /// Returns the mark of a caller that has not asked the nodes to set it yet.
    pub(super) fn new(context: &'a Arc<Context>, spec: &'a LockSpec) -> Self {
        Self { context, spec, mark: WriterMark::random(), is_set: false }
    }

    /// Returns the mark, to be set by the next attempt.
    pub(super) fn set(&mut self) -> WriterMark {
        self.is_set = true;
        self.mark
    }

    /// Records that the lock was acquired, which has removed all marks.
    pub(super) fn acquired(&mut self) {
        self.is_set = false;
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        if self.is_set {
            self.context.ballot.withdraw_in_background(self.spec, self.mark);
        }
    }
}
