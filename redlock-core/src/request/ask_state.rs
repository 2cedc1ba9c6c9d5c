//! The state that a caller keeps from one attempt to the next.

use std::sync::Arc;

use crate::context::Context;
use crate::lock::{LockSpec, Mark, Mode};

/// The state that a caller keeps from one attempt to the next.
#[derive(Default)]
pub(super) struct AskState<'a> {
    /// Whether a refusal does not need to report how long the other holder's lease lasts.
    pub(super) skip_ttl_lookup: bool,
    /// Whether shared holders have refused an exclusive lock.
    pub(super) met_marks: bool,
    /// The mark of a caller that waits for an exclusive lock.
    pub(super) mark: Option<OwnMark<'a>>,
}

impl<'a> AskState<'a> {
    /// Returns the state of a caller that waits for the lock.
    pub(super) fn of_waiter(context: &'a Arc<Context>, spec: &'a LockSpec) -> Self {
        let is_exclusive = spec.mode() == Mode::Exclusive;
        Self { mark: is_exclusive.then(|| OwnMark::new(context, spec)), ..Self::default() }
    }
}

/// The mark of a caller that waits for an exclusive lock. When dropped, withdraws the mark from the nodes that may have
/// it.
pub(super) struct OwnMark<'a> {
    context: &'a Arc<Context>,
    spec: &'a LockSpec,
    id: Mark,
    is_set: bool,
}

impl<'a> OwnMark<'a> {
    /// Returns the mark of a caller that has not asked the nodes to set it yet.
    pub(super) fn new(context: &'a Arc<Context>, spec: &'a LockSpec) -> Self {
        Self { context, spec, id: Mark::random(), is_set: false }
    }

    /// Returns the mark, to be set by the next attempt.
    pub(super) fn set(&mut self) -> Mark {
        self.is_set = true;
        self.id
    }

    /// Records that the lock was acquired, which has removed all marks on the nodes that have granted it.
    pub(super) fn acquired(&mut self) {
        // Of several nodes, a minority may have refused the lock, and keep the mark.
        self.is_set &= self.context.ballot.nodes.len() > 1;
    }
}

impl Drop for OwnMark<'_> {
    fn drop(&mut self) {
        if self.is_set {
            self.context.ballot.withdraw_in_background(self.spec, self.id);
        }
    }
}

#[cfg(test)]
#[cfg(feature = "test-util")]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use crate::LockManager;
    use crate::test_util::TestLocks;

    /// The simulation found a mark that stopped readers on one node for a second.
    #[tokio::test(start_paused = true)]
    async fn the_mark_is_withdrawn_from_a_minority_that_refuses_the_lock() {
        let nodes = TestLocks::new(3);
        let (locks, others) = (nodes.manager(), nodes.builder().connect().await.unwrap());
        let first = LockManager::builder().test_clock(nodes.clock()).node(nodes.nodes()[0].clone());
        let first = first.connect().await.unwrap();
        let reader = others.lock("a").shared().try_acquire().await.unwrap();
        let reader_of_first = first.lock("a").shared().try_acquire().await.unwrap();
        let writer = tokio::spawn(locks.lock("a").wait_forever().acquire());
        sleep(Duration::from_millis(20)).await;
        let next = LockManager::builder().test_clock(nodes.clock()).node(nodes.nodes()[0].clone());
        let next = next.connect().await.unwrap();
        let refused = next.lock("a").shared().try_acquire().await.unwrap_err();
        assert!(refused.is_contended(), "the writer has left no mark: {refused:?}");
        reader.release().await.unwrap();
        let writer = writer.await.unwrap().unwrap();
        sleep(Duration::from_millis(20)).await;
        let reader_of_next = next.lock("a").shared().try_acquire().await.unwrap();
        drop((writer, reader_of_first, reader_of_next));
    }
}
