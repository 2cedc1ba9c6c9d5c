//! Keeps this process present in its fair queues.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::REFRESH;
use super::fair_queue::FairQueue;
use super::fair_queues::FairQueues;
use crate::lock::{LockSpec, Mode, QueueKey};
use crate::queue::queues::Queues;
use crate::runtimes::BackgroundService;

/// Refreshes the presence of this process in all of its fair queues, in one task.
///
/// A refresh is one command per second for each key that this process waits for, however many waiters it has.
#[derive(Debug)]
pub(crate) struct FairKeeper {
    fair: Arc<FairQueues>,
    queues: Arc<Queues>,
}

impl FairKeeper {
    pub(crate) fn new(fair: &Arc<FairQueues>, queues: &Arc<Queues>) -> Self {
        Self { fair: Arc::clone(fair), queues: Arc::clone(queues) }
    }
}

impl BackgroundService for FairKeeper {
    fn start(&self, runtime: &Handle, stop: &CancellationToken) {
        let wake = self.fair.restart();
        let (fair, queues) = (Arc::downgrade(&self.fair), Arc::downgrade(&self.queues));
        let stop = stop.clone();
        runtime.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = keep(fair, queues, wake) => {}
            }
        });
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
