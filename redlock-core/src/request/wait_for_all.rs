//! Waiting for a lock of several keys.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::acquisition::Acquisition;
use super::ask_state::AskState;
use super::wait::{QueueExit, left};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::jitter::jitter;
use crate::queue::OutageWait;

/// A wait in one queue that was shorter than this did not wait for a holder.
const SHORT_WAIT: Duration = Duration::from_millis(8);

impl Acquisition<'_> {
    /// Asks the nodes for all keys. If one of them is held, waits in its queue, and asks for all keys when it
    /// is this caller's turn there. If another key is held by then, goes on to the queue of that key. `None` as
    /// deadline waits without a limit.
    ///
    /// The caller holds no key while it waits, so that callers of overlapping keys cannot block each other. In
    /// each queue it stands in front of the callers that came later than it.
    pub(super) async fn wait_for_all(
        &self,
        deadline: Option<Instant>,
    ) -> Result<LockGuard, LockError> {
        let since = Instant::now();
        // One mark for the whole wait: a mark that was withdrawn at one key would let readers of the other keys in while
        // this caller goes on to the next queue.
        let mut state = AskState::of_waiter(self.context, &self.spec);
        let (mut key, refused) = match self.context.queues.busy_key(&self.spec) {
            Some(key) => (key, false),
            None => match self.ask_nodes(&mut state).await {
                Ok(guard) => return Ok(guard),
                Err(LockError::Contended { key, .. }) if !left(deadline).is_zero() => {
                    if let Some(guard) = self.share_in_scope()? {
                        return Ok(guard);
                    }
                    (self.keys.index_of(&key), true)
                }
                Err(error) => return Err(error),
            },
        };
        let mut waiter = self.join(key, since, None)?;
        let mut outage_wait = OutageWait::new(&waiter);
        if refused {
            outage_wait.record_refusal(&waiter);
        }
        let several_nodes = self.context.ballot.nodes.len() > 1;
        loop {
            let begun = Instant::now();
            let held_at = loop {
                let waiting =
                    self.wait_in_queue(&waiter, key, None, &mut outage_wait, &mut state, deadline);
                match waiting.await? {
                    QueueExit::Acquired(guard) => return Ok(guard),
                    QueueExit::HeldAt(other) if other != key => break other,
                    QueueExit::HeldAt(_) | QueueExit::Queued => {}
                }
            };
            drop(waiter);
            key = held_at;
            if several_nodes && begun.elapsed() < SHORT_WAIT {
                // Nodes that disagree name one key and then another. Without a pause, the caller could ask
                // them again and again without ever waiting for a holder.
                let pause = jitter(SHORT_WAIT / 2..SHORT_WAIT);
                sleep(pause.min(left(deadline))).await;
            }
            waiter = self.join(key, since, None)?;
        }
    }
}
