//! Looks after a fair queue: the presence of this process, its tickets, and the choice of the conductor.

use std::sync::{Arc, Weak};

use tokio::time::{Instant, timeout};

use super::fair_queue::FairQueue;
use super::state::Entry;
use super::{REFRESH, STALL};
use crate::error::{NodeError, Vote};
use crate::node::{NodeStatus, QueueAction};

impl FairQueue {
    /// Refreshes the presence of this process, enters missing tickets, and moves to another conductor if the conductor has
    /// failed or a node before it is back. `is_held_here` returns whether this process holds the lock.
    pub(super) async fn look_after(&self, is_held_here: impl FnOnce() -> bool) {
        let now = Instant::now();
        // Asked before the state is locked, because hand-overs lock the state under the lock of the queues.
        let is_held_here = is_held_here();
        let (current, failure) = {
            let mut state = self.state.lock();
            state.due = now + REFRESH;
            let has_stalled =
                |since: Instant| now.duration_since(since.max(state.last_turn)) >= STALL;
            if state.is_stalled
                || state.first.is_some_and(|(_, since)| has_stalled(since)) && !is_held_here
            {
                state.is_stalled = true;
                (state.first, state.behind) = (None, None);
                return;
            }
            (state.conductor.as_ref().ok().copied(), state.failure.take())
        };
        if let Some(index) = current
            && failure.is_none()
        {
            self.subscribe(index).await;
        }
        self.settle(current, failure).await;
    }

    /// Subscribes to the notifications of a node, and waits until the subscription is in effect.
    async fn subscribe(&self, index: usize) {
        if matches!(self.state.lock().subscription, Some((node, _)) if node == index) {
            return;
        }
        let this = Weak::clone(&self.this);
        let notify = Arc::new(move || {
            if let Some(queue) = this.upgrade() {
                queue.wake_keeper();
            }
        });
        let node = &self.shared.ballot.nodes[index];
        let mut subscription = node.subscribe_queue(&self.spec, self.shared.process, notify);
        let ready = subscription.take_ready();
        {
            let mut state = self.state.lock();
            if state.waiters.is_empty() {
                return;
            }
            state.subscription = Some((index, subscription));
        }
        if let Some(ready) = ready {
            let _ = timeout(self.shared.ballot.node_timeout, ready).await;
        }
    }

    /// Asks the nodes in their order until one of them keeps the order.
    async fn settle(&self, current: Option<usize>, mut failure: Option<NodeError>) {
        let ballot = &self.shared.ballot;
        let mut votes = Vec::new();
        for (index, status) in ballot.statuses.iter().enumerate() {
            let is_current = current == Some(index);
            let attempt = match (is_current.then(|| failure.take()).flatten(), status.get()) {
                (Some(failure), _) => Err(failure),
                (None, NodeStatus::Down(reason)) if !is_current => Err(reason),
                _ => self.settle_at(index, is_current).await,
            };
            match attempt {
                Ok(()) => {
                    if let Some(former) = current.filter(|_| !is_current) {
                        self.leave_at(former, self.numbers());
                    }
                    return;
                }
                Err(error) => votes.push(Some(Vote::Failed(error))),
            }
        }
        let names = ballot.nodes.iter().map(|node| Arc::clone(node.name()));
        let mut state = self.state.lock();
        state.conductor = Err(names.zip(votes).collect());
        (state.first, state.behind) = (None, None);
        state.failed_searches += 1;
        drop(state);
        self.notify();
    }

    /// Refreshes the presence on a node, and enters the tickets that it does not have.
    async fn settle_at(&self, index: usize, is_current: bool) -> Result<(), NodeError> {
        if is_current {
            let reply = self.shared.call(index, self.op(QueueAction::Refresh)).await?;
            if reply.was_present {
                self.apply(index, &reply);
            } else {
                self.state.lock().forget_entries(index);
            }
        }
        let missing: Vec<u64> = {
            let state = self.state.lock();
            let missing = state.waiters.iter().filter(|(_, waiter)| match waiter.entry {
                Entry::Missing => true,
                Entry::Pending => !is_current,
                Entry::At(node) => node != index,
            });
            missing.map(|(number, _)| *number).collect()
        };
        if missing.is_empty() && is_current {
            return Ok(());
        }
        self.enter_at(index, missing, true).await
    }
}
