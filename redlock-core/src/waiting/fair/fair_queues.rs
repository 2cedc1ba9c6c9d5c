//! All fair queues of a manager.

use std::array;
use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ahash::RandomState;
use futures_util::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

use super::machine::FairMachine;
use super::queue::FairQueue;
use crate::ballot::Ballot;
use crate::error::{LockError, NodeError, Vote, Votes};
use crate::key::LockKey;
use crate::lock::{ByDialect, LockSpec};
use crate::log_limit::LogLimit;
use crate::node::{NodeStatus, ProcessId, QueueAction, QueueFuture, QueueOp, QueueReply, Silence};
use crate::random::hash_state;
use crate::telemetry;
use crate::waiting::Queues;

/// The fair queues in which this process waits.
pub(crate) struct FairQueues {
    pub(super) process: ProcessId,
    pub(super) queues: Arc<Queues>,
    log_limit: Arc<LogLimit>,
    /// The index of the last conductor of any queue.
    last_conductor: AtomicUsize,
    /// The number of the next ticket.
    pub(super) next_ticket: AtomicU64,
    /// The queues that have an attendant.
    by_key: ByDialect<Mutex<HashMap<LockKey, Arc<FairQueue>, RandomState>>>,
}

/// An operation that a node executes.
pub(super) struct FairCall {
    index: usize,
    reply: QueueFuture,
    begun: Instant,
}

impl FairCall {
    /// Sends the operation by the first poll. Returns the reply if the node gives it at once.
    pub(super) fn poll_once(&mut self) -> Option<Result<QueueReply, NodeError>> {
        (&mut self.reply).now_or_never()
    }
}

impl FairQueues {
    pub(crate) fn new(queues: Arc<Queues>, log_limit: Arc<LogLimit>) -> Arc<Self> {
        Arc::new(Self {
            process: ProcessId::random(),
            queues,
            log_limit,
            last_conductor: AtomicUsize::new(0),
            next_ticket: AtomicU64::new(0),
            by_key: array::from_fn(|_| Mutex::new(HashMap::with_hasher(hash_state()))),
        })
    }

    /// Locks the queues of the dialect of `spec`.
    pub(super) fn lock(
        &self,
        spec: &LockSpec,
    ) -> MutexGuard<'_, HashMap<LockKey, Arc<FairQueue>, RandomState>> {
        self.by_key[spec.dialect().index()].lock()
    }

    /// Returns whether a caller waits in the fair queue of a lock, in any process.
    ///
    /// # Errors
    ///
    /// Returns [`LockError::Unavailable`] if no node keeps the order.
    pub(crate) async fn is_occupied(&self, spec: &LockSpec) -> Result<bool, LockError> {
        match self.inspect(spec, self.queues.ballot.nodes.len()).await {
            Ok((_, reply)) => Ok(reply.first.is_some() || self.has_waiters(spec)),
            Err(reasons) => {
                let (key, votes) = (spec.key().clone(), self.no_conductor(reasons));
                Err(LockError::Unavailable { key, votes })
            }
        }
    }

    /// Returns whether a caller of this process waits in the fair queue of a lock. Its ticket may still be on its way. A caller
    /// whose future is not polled does not count: other processes do not wait for it either.
    fn has_waiters(&self, spec: &LockSpec) -> bool {
        let by_key = self.lock(spec);
        by_key.get(spec.key()).is_some_and(|queue| {
            let machine = queue.machine.lock();
            machine.has_waiters() && !machine.may_have_stalled(Instant::now())
        })
    }

    /// Returns the index of the first node that answers, and its reply. Asks only this number of nodes, one after another.
    pub(super) async fn inspect(
        &self,
        spec: &LockSpec,
        nodes: usize,
    ) -> Result<(usize, QueueReply), Vec<NodeError>> {
        let mut reasons = Vec::new();
        for (index, status) in self.queues.ballot.statuses[..nodes].iter().enumerate() {
            let attempt = match status.get() {
                NodeStatus::Down(reason) => Err(reason),
                NodeStatus::Up | NodeStatus::Connecting => {
                    self.call(index, spec, QueueAction::Inspect).await
                }
            };
            match attempt {
                Ok(reply) => return Ok((index, reply)),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons)
    }

    /// Returns the votes of nodes none of which keeps the order, each for its reason.
    pub(super) fn no_conductor(&self, reasons: Vec<NodeError>) -> Votes {
        let names = self.queues.ballot.nodes.iter().map(|node| Arc::clone(node.name()));
        names.zip(reasons.into_iter().map(|reason| Some(Vote::Failed(reason)))).collect()
    }

    /// Executes an operation on a node.
    pub(super) async fn call(
        &self,
        index: usize,
        spec: &LockSpec,
        action: QueueAction,
    ) -> Result<QueueReply, NodeError> {
        self.finish(self.begin(index, spec, action)).await
    }

    /// Begins an operation on a node.
    pub(super) fn begin(&self, index: usize, spec: &LockSpec, action: QueueAction) -> FairCall {
        let order = self.queues.ballot.nodes[index].fair_order();
        let reply = order.map_or_else(
            || -> QueueFuture {
                let error = NodeError::Server("the node has no fair queues".into());
                Box::pin(ready(Err(error)))
            },
            |order| order.queue(QueueOp::new(spec, self.process, action)),
        );
        FairCall { index, reply, begun: Instant::now() }
    }

    /// Waits for the reply. Returns an error if the node is silent for the node timeout.
    pub(super) async fn finish(&self, call: FairCall) -> Result<QueueReply, NodeError> {
        let FairCall { index, mut reply, begun } = call;
        let Queues { home, ballot: Ballot { node_timeout, nodes, .. }, .. } = &*self.queues;
        let mut pause = *node_timeout;
        let mut idle = pin!(home.idle(*node_timeout));
        loop {
            tokio::select! {
                biased;
                reply = &mut reply => return reply,
                () = &mut idle => return Err(NodeError::RuntimeIdle),
                () = sleep(pause) => {}
            }
            match nodes[index].silence(*node_timeout, begun.elapsed()) {
                Silence::Silent(time) => return Err(NodeError::NoReply(time)),
                Silence::CheckAgainAfter(rest) => pause = rest,
            }
        }
    }

    /// Records that a node has replied as the conductor of a queue. Counts and logs a change. `failure` is that of the node
    /// before it.
    pub(super) fn record_conductor(&self, index: usize, failure: Option<&NodeError>) {
        let before = self.last_conductor.swap(index, Ordering::Relaxed);
        if before == index {
            return;
        }
        telemetry::conductor_changed(1);
        let [before, now] = [before, index].map(|index| self.queues.ballot.nodes[index].name());
        if let Some(suppressed) = self.log_limit.admit("conductor", before) {
            tracing::warn!(
                node = %now, former = %before, reason = failure.map(tracing::field::display), suppressed,
                "another node keeps the order of fair waiters now; those that arrived together may change places"
            );
        }
    }

    /// Removes a queue that meets the condition. Returns whether it does.
    pub(super) fn remove_if(
        &self,
        spec: &LockSpec,
        queue: &Arc<FairQueue>,
        condition: impl FnOnce(&FairMachine<NodeError>) -> bool,
    ) -> bool {
        let (mut by_key, key) = (self.lock(spec), spec.key());
        let is_over = condition(&queue.machine.lock());
        if is_over && by_key.get(key).is_some_and(|present| Arc::ptr_eq(present, queue)) {
            by_key.remove(key);
        }
        is_over
    }

    #[cfg(test)]
    pub(crate) fn process(&self) -> ProcessId {
        self.process
    }

    #[cfg(any(test, feature = "unstable-simulation"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.iter().all(|by_key| by_key.lock().is_empty())
    }
}

impl fmt::Debug for FairQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairQueues").field("process", &self.process).finish_non_exhaustive()
    }
}
