//! The state that the fair queues of a manager share.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::ballot::Ballot;
use crate::error::NodeError;
use crate::lock::QueueKey;
use crate::log_limit::LogLimit;
use crate::node::{Node, ProcessId, QueueFuture, QueueOp, QueueReply, Silence};
use crate::telemetry;

/// The nodes and the identity that the fair queues of a manager share.
pub(super) struct FairShared {
    pub(super) process: ProcessId,
    pub(super) ballot: Ballot,
    log_limit: Arc<LogLimit>,
    /// The index of the last conductor of any queue.
    last_conductor: AtomicUsize,
    next_ticket: AtomicU64,
    pub(super) closed: AtomicBool,
    /// The queues that the keeper has to look after at once.
    urgent: Mutex<Urgent>,
}

#[derive(Default)]
struct Urgent {
    keys: Vec<QueueKey>,
    /// Wakes the keeper's task.
    wake: Arc<Notify>,
}

impl FairShared {
    pub(super) fn new(ballot: Ballot, log_limit: Arc<LogLimit>) -> Arc<Self> {
        Arc::new(Self {
            process: ProcessId::random(),
            ballot,
            log_limit,
            last_conductor: AtomicUsize::new(0),
            next_ticket: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            urgent: Mutex::default(),
        })
    }

    /// Returns the number of a new ticket.
    pub(super) fn next_ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Returns the index of the first node that is up, or of the first node if none is.
    pub(super) fn first_up(&self) -> usize {
        let mut statuses = self.ballot.statuses.iter();
        statuses.position(|status| status.get().is_up()).unwrap_or_default()
    }

    /// Lets the keeper look after a queue at once.
    pub(super) fn wake_keeper(&self, key: &QueueKey) {
        let mut urgent = self.urgent.lock();
        urgent.keys.push(key.clone());
        urgent.wake.notify_one();
    }

    /// Wakes the keeper, which does not look at the queues while there are none.
    pub(super) fn wake_idle_keeper(&self) {
        self.urgent.lock().wake.notify_one();
    }

    pub(super) fn take_urgent(&self) -> Vec<QueueKey> {
        std::mem::take(&mut self.urgent.lock().keys)
    }

    /// Returns the `Notify` that wakes the keeper's task.
    pub(super) fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.urgent.lock().wake)
    }

    /// Executes an operation on a node. Returns an error if the node is silent for the node timeout.
    pub(super) async fn call(&self, index: usize, op: QueueOp) -> Result<QueueReply, NodeError> {
        let node = &self.ballot.nodes[index];
        self.reply(&**node, node.queue(op)).await
    }

    async fn reply(
        &self,
        node: &dyn Node,
        mut reply: QueueFuture,
    ) -> Result<QueueReply, NodeError> {
        let Ballot { home, node_timeout, .. } = &self.ballot;
        let begun = Instant::now();
        let mut pause = *node_timeout;
        let mut idle = pin!(home.idle(*node_timeout));
        loop {
            tokio::select! {
                biased;
                reply = &mut reply => return reply,
                () = &mut idle => return Err(NodeError::RuntimeIdle),
                () = sleep(pause) => {}
            }
            match node.silence(*node_timeout, begun.elapsed()) {
                Silence::Silent(time) => return Err(NodeError::NoReply(time)),
                Silence::CheckAgainAfter(rest) => pause = rest,
            }
        }
    }

    /// Sends an operation in the thread of the caller, even outside of a runtime. A shutdown waits for the reply, which
    /// is passed to `on_reply`.
    pub(super) fn call_in_background(
        self: &Arc<Self>,
        index: usize,
        op: QueueOp,
        on_reply: impl FnOnce(Result<QueueReply, NodeError>) + Send + 'static,
    ) {
        let mut reply = self.ballot.nodes[index].queue(op);
        // The first poll sends the command, whatever happens to the runtime.
        if let Poll::Ready(reply) = reply.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return on_reply(reply);
        }
        let shared = Arc::clone(self);
        self.ballot.home.spawn(async move {
            let node = Arc::clone(&shared.ballot.nodes[index]);
            on_reply(shared.reply(&*node, reply).await);
        });
    }

    /// Records that a node has replied as the conductor of a queue. Counts and logs a change.
    pub(super) fn record_conductor(&self, index: usize) {
        let before = self.last_conductor.swap(index, Ordering::Relaxed);
        if before == index {
            return;
        }
        telemetry::conductor_changed();
        let [before, now] = [before, index].map(|index| self.ballot.nodes[index].name());
        if let Some(suppressed) = self.log_limit.admit("conductor", before) {
            tracing::warn!(
                node = %now, former = %before, suppressed,
                "another node keeps the order of fair waiters now; those that arrived together may change places"
            );
        }
    }
}

impl fmt::Debug for FairShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairShared").field("process", &self.process).finish_non_exhaustive()
    }
}
