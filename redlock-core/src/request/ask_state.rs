//! What a waiting caller has learnt from the nodes, and the mark by which they know it.

use std::sync::Arc;

use crate::context::Context;
use crate::lock::{LockSpec, Mode, WriterMark};

/// What a caller has learnt from the earlier refusals of its request.
#[derive(Default)]
pub(super) struct AskState<'a> {
    /// Whether a refusal does not need to report how long the other holder's lease lasts.
    pub(super) skip_ttl_lookup: bool,
    /// Whether shared holders have refused an exclusive lock.
    pub(super) met_shared: bool,
    /// The mark of a caller that waits for an exclusive lock.
    pub(super) mark: Option<Mark<'a>>,
}

impl<'a> AskState<'a> {
    /// Returns the state of a caller that waits for the lock.
    pub(super) fn of_waiter(context: &'a Arc<Context>, spec: &'a LockSpec) -> Self {
        let is_exclusive = spec.mode() == Mode::Exclusive;
        Self { mark: is_exclusive.then(|| Mark::new(context, spec)), ..Self::default() }
    }
}

/// The mark of a caller that waits for an exclusive lock. When dropped, withdraws the mark from the nodes that may have
/// it.
pub(super) struct Mark<'a> {
    context: &'a Arc<Context>,
    spec: &'a LockSpec,
    id: WriterMark,
    is_set: bool,
}

impl<'a> Mark<'a> {
    /// Returns the mark of a caller that has not asked the nodes to set it yet.
    pub(super) fn new(context: &'a Arc<Context>, spec: &'a LockSpec) -> Self {
        Self { context, spec, id: WriterMark::random(), is_set: false }
    }

    /// Returns the mark, to be set by the next attempt.
    pub(super) fn set(&mut self) -> WriterMark {
        self.is_set = true;
        self.id
    }

    /// Records that the lock was acquired, which has removed all marks.
    pub(super) fn acquired(&mut self) {
        self.is_set = false;
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        if self.is_set {
            self.context.ballot.withdraw_in_background(self.spec, self.id);
        }
    }
}
