//! Waiting for a lock of several keys.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::acquisition::Acquisition;
use super::wait::QueueExit;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::queue::{Backoff, OutageWait};

/// A wait in one queue that was shorter than this did not wait for a holder.
const SHORT_WAIT: Duration = Duration::from_millis(10);

impl Acquisition<'_> {
    /// Asks the nodes for all keys. If one of them is held, waits in its queue, and asks for all keys when it
    /// is this caller's turn there. If another key is held by then, goes on to the queue of that key. `None` as
    /// deadline waits without a limit.
    ///
    /// The caller holds no key while it waits, so that callers of overlapping keys cannot block each other.
    pub(super) async fn wait_for_all(
        &self,
        deadline: Option<Instant>,
    ) -> Result<LockGuard, LockError> {
        let (mut key, refused) = match self.context.queues.local_conflict(&self.spec) {
            Some(conflict) => (conflict.key, false),
            None => match self.ask_nodes(false).await {
                Ok(guard) => return Ok(guard),
                Err(LockError::Contended { key, .. }) if !is_over(deadline) => {
                    if let Some(guard) = self.share_in_scope()? {
                        return Ok(guard);
                    }
                    (self.keys.index_of(&key), true)
                }
                Err(error) => return Err(error),
            },
        };
        let mut waiter = self.join(key)?;
        let mut outage_wait = OutageWait::new(&waiter);
        if refused {
            outage_wait.record_refusal(&waiter);
        }
        let mut backoff = Backoff::new();
        let mut short_waits = 0;
        loop {
            let begun = Instant::now();
            let held_at = loop {
                match self.wait_in_queue(&waiter, key, &mut outage_wait, deadline).await? {
                    QueueExit::Acquired(guard) => return Ok(guard),
                    QueueExit::HeldAt(other) if other != key => break other,
                    QueueExit::HeldAt(_) => {}
                }
            };
            drop(waiter);
            key = held_at;
            if begun.elapsed() >= SHORT_WAIT {
                short_waits = 0;
                backoff = Backoff::new();
            } else {
                short_waits += 1;
            }
            if short_waits > 1 {
                // The nodes name one key and then another. Without a pause, the caller could ask them again
                // and again without ever waiting for a holder.
                sleep(backoff.pause().min(left(deadline))).await;
            }
            waiter = self.join(key)?;
        }
    }
}

fn left(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
}

fn is_over(deadline: Option<Instant>) -> bool {
    left(deadline).is_zero()
}
