//! Keeps this process present in its fair queues.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::REFRESH;
use super::fair_queue::FairQueue;
use super::fair_queues::FairQueues;
use crate::lock::{LockSpec, Mode, QueueKey};
use crate::queue::queues::Queues;

/// Refreshes the presence of this process in all of its fair queues, in one task.
///
/// A refresh is one command per second for each key that this process waits for, however many waiters it has.
#[derive(Debug)]
pub(crate) struct FairKeeper {
    fair: Arc<FairQueues>,
    queues: Arc<Queues>,
    /// Ends the task when the manager and its last guard have been dropped.
    end: CancellationToken,
    _end_on_drop: DropGuard,
}

impl FairKeeper {
    pub(crate) fn new(fair: &Arc<FairQueues>, queues: &Arc<Queues>) -> Self {
        let end = CancellationToken::new();
        let (fair, queues) = (Arc::clone(fair), Arc::clone(queues));
        Self { fair, queues, _end_on_drop: end.clone().drop_guard(), end }
    }

    /// Starts the task.
    pub(crate) fn start(&self, runtime: &Handle) {
        let (fair, queues) = (Arc::downgrade(&self.fair), Arc::downgrade(&self.queues));
        let keep = keep(fair, queues, self.fair.wake());
        runtime.spawn(self.end.clone().run_until_cancelled_owned(keep));
    }
}

/// Looks after the queues that are due or urgent, until the manager is dropped.
async fn keep(fair: Weak<FairQueues>, queues: Weak<Queues>, wake: Arc<Notify>) {
    let mut in_progress = FuturesUnordered::new();
    let mut keys_in_progress: HashSet<QueueKey> = HashSet::new();
    // Keys that became urgent while their queues were in progress.
    let mut again: Vec<QueueKey> = Vec::new();
    let mut is_due = None;
    loop {
        let next = {
            let Some(fair) = fair.upgrade() else { return };
            let mut urgent: HashSet<QueueKey> = fair.shared.take_urgent().into_iter().collect();
            urgent.extend(again.drain(..));
            for queue in fair.due(&urgent, is_due) {
                let key = queue.spec().queue_key();
                if keys_in_progress.insert(key.clone()) {
                    in_progress.push(look_after(queue, Weak::clone(&queues)));
                } else if urgent.contains(key) {
                    again.push(key.clone());
                }
            }
            let latest = Instant::now() + REFRESH;
            fair.next_due(&keys_in_progress).map(|due| due.min(latest))
        };
        let due = async {
            match next {
                Some(next) => sleep_until(next).await,
                // The first queue wakes this task.
                None => std::future::pending().await,
            }
        };
        is_due = None;
        tokio::select! {
            biased;
            Some(key) = in_progress.next() => {
                keys_in_progress.remove(&key);
            }
            () = wake.notified() => {}
            () = due => is_due = Some(Instant::now()),
        }
    }
}

async fn look_after(queue: Arc<FairQueue>, queues: Weak<Queues>) -> QueueKey {
    let is_held_here = |spec: &LockSpec| {
        // Whatever the mode of the first waiter is, any holder of this process may keep it from asking.
        let spec = spec.with_mode(Mode::Exclusive);
        queues.upgrade().is_some_and(|queues| queues.local_conflict(&spec).is_some())
    };
    queue.look_after(|| is_held_here(queue.spec())).await;
    queue.spec().queue_key().clone()
}
