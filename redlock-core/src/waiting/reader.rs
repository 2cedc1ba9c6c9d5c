//! A reader that does not wait: it joins the lock of another reader of its process, or asks the nodes once.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::sleep_until;

use super::Instant;
use super::queues::{Queues, refusal_of};
use super::waiter::{Waiter, WaiterOptions};
use crate::error::LockError;
use crate::lease::Holding;
use crate::lock::LockSpec;

/// The place of a reader that does not wait, while it asks the nodes: other readers wait for its answer. Dropping it lets
/// them ask themselves. A lock that the reader has joined and not taken goes on.
#[derive(Debug)]
pub(crate) struct ReaderPlace<'a> {
    queues: &'a Queues,
    waiter: Arc<Waiter>,
}

impl<'a> ReaderPlace<'a> {
    pub(crate) fn new(queues: &'a Queues, spec: &LockSpec, options: WaiterOptions) -> Self {
        Self { queues, waiter: Arc::new(Waiter::new(spec.clone(), options)) }
    }

    /// Waits for the answer to another reader of this process, if one asks the nodes, for as long as that may be of use.
    /// Returns the holding of the reader if it has joined a lock, or `None` if it has to ask the nodes.
    ///
    /// # Errors
    ///
    /// Returns the refusal because of a lock of this process, or of a writer that waits here.
    pub(crate) async fn join_or_ask(&self) -> Result<Option<Arc<Holding>>, LockError> {
        // Outside of every runtime, no timer ends the wait.
        let may_follow = Handle::try_current().is_ok();
        if let Some(until) = self.look(may_follow)? {
            tokio::select! {
                biased;
                () = self.waiter.changed.notified() => {}
                () = sleep_until(until) => {}
            }
            // Once only: the answer was of no use to it.
            if !self.waiter.was_handed_over() {
                self.look(false)?;
            }
        }
        Ok(self.waiter.take())
    }

    /// Looks at the line: joins a lock, waits for another reader until the returned time, or begins to ask.
    fn look(&self, may_follow: bool) -> Result<Option<Instant>, LockError> {
        let Self { queues, waiter } = self;
        let mut by_key = queues.lock(&waiter.spec);
        if waiter.was_handed_over() {
            return Ok(None);
        }
        let line = by_key.entry(waiter.spec.key().clone()).or_default();
        line.unfollow(waiter);
        let now = Instant::now();
        if queues.join_as(line, waiter, now) {
            return Ok(None);
        }
        if let Some(refusal) = refusal_of(line, &waiter.spec) {
            return Err(refusal);
        }
        let until = line.follows(waiter, now).filter(|_| may_follow);
        match until {
            Some(_) => line.follow(waiter),
            None => line.begin_question(waiter, now),
        }
        Ok(until)
    }
}

impl Drop for ReaderPlace<'_> {
    fn drop(&mut self) {
        self.queues.end_question(&self.waiter);
    }
}
