//! Keeps the tickets of this process in one fair queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::fair_queues::FairQueues;
use super::prompt_task::PromptTask;
use super::tickets::Tickets;
use crate::error::NodeError;
use crate::lock::{LockSpec, Mode};
use crate::node::{NodeStatus, QueueAction, QueueReply, Subscription};
use crate::queue::Queues;

/// The pause between two refreshes of the presence.
const REFRESH: Duration = Duration::from_secs(1);

/// A process that has the first ticket, and whose first waiter has not asked for the lock for this time, is not
/// refreshed: its caller may have stopped polling its future. Longer than the pauses of a waiter between two attempts.
const STALL: Duration = Duration::from_secs(2);

/// Keeps the tickets of this process in one fair queue, as long as it has waiters there.
///
/// It alone enters, refreshes and removes tickets, one operation after another, so that replies come in order. A refresh
/// is one command per second, however many waiters there are.
struct Attendant {
    fair: Arc<FairQueues>,
    queues: Arc<Queues>,
    spec: LockSpec,
    tickets: Arc<Tickets>,
    /// The index of the node that keeps the order.
    conductor: Option<usize>,
    /// The index of the latest conductor, which may still have tickets of this process.
    latest: usize,
    subscription: Option<(usize, Subscription)>,
    /// Notified by the conductor when the first ticket may be one of this process.
    message: Arc<Notify>,
    /// When to refresh the presence.
    due: Instant,
}

/// Starts the attendant of a queue that has a first waiter.
pub(super) fn start(
    fair: &Arc<FairQueues>,
    queues: &Arc<Queues>,
    spec: &LockSpec,
    tickets: &Arc<Tickets>,
) -> Arc<PromptTask> {
    let statuses = &fair.ballot.statuses;
    let first_up = statuses.iter().position(|status| status.get().is_up()).unwrap_or_default();
    let attendant = Attendant {
        fair: Arc::clone(fair),
        queues: Arc::clone(queues),
        spec: spec.clone(),
        tickets: Arc::clone(tickets),
        conductor: Some(first_up),
        latest: first_up,
        subscription: None,
        message: Arc::default(),
        due: Instant::now() + REFRESH,
    };
    PromptTask::spawn(&fair.ballot.home, Box::pin(attendant.attend()))
}

impl Attendant {
    async fn attend(mut self) {
        loop {
            // A shutdown in the next round trip needs another turn.
            let is_closed = self.fair.is_closed();
            self.leave(is_closed).await;
            if self.is_done(is_closed) {
                return;
            }
            self.keep_places().await;
            let message = Arc::clone(&self.message);
            tokio::select! {
                biased;
                () = self.tickets.wake.notified() => {}
                () = message.notified() => self.due = Instant::now(),
                () = sleep_until(self.due) => {}
            }
        }
    }

    /// Removes the tickets of waiters that have left. A ticket whose removal fails is removed when it is the first, or ends
    /// with the presence of this process.
    async fn leave(&mut self, is_closed: bool) {
        let gone = self.tickets.take_gone(is_closed);
        if gone.is_empty() {
            return;
        }
        let action = QueueAction::Leave { numbers: gone.into() };
        if let Ok(reply) = self.fair.call(self.latest, &self.spec, action).await
            && self.conductor == Some(self.latest)
        {
            self.apply(&reply);
        }
    }

    /// Returns whether no waiter is left. The next waiter gets an attendant of its own.
    fn is_done(&self, is_closed: bool) -> bool {
        let mut by_key = self.fair.lock(&self.spec);
        let is_done = is_closed || self.tickets.are_unused();
        if is_done {
            by_key.remove(self.spec.key());
        }
        is_done
    }

    /// Enters the tickets that the conductor does not have, or refreshes the presence if that is due. If the conductor fails,
    /// or a node before it is back, moves to another one.
    async fn keep_places(&mut self) {
        let is_due = self.due <= Instant::now();
        if is_due {
            self.due = Instant::now() + REFRESH;
        }
        if self.has_stalled() {
            return;
        }
        let failure = match self.conductor {
            // Once a second, the nodes before the conductor are tried.
            Some(index) if !is_due => self.keep_places_at(index, false).await.err(),
            _ => None,
        };
        if !is_due && failure.is_none() && self.conductor.is_some() {
            return;
        }
        self.search(failure).await;
    }

    fn has_stalled(&self) -> bool {
        // A holder in any mode may keep the first waiter from asking, so this asks for an exclusive lock.
        let spec = self.spec.with_mode(Mode::Exclusive);
        self.queues.local_conflict(&spec).is_none() && self.tickets.has_stalled(STALL)
    }

    /// Asks the nodes in their order until one of them keeps the order.
    async fn search(&mut self, mut failure: Option<NodeError>) {
        let former = self.conductor;
        let mut reasons = Vec::new();
        for index in 0..self.fair.ballot.nodes.len() {
            let is_current = former == Some(index);
            let failed = if is_current { failure.take() } else { None };
            let attempt = match (failed, self.fair.ballot.statuses[index].get()) {
                (Some(failure), _) => Err(failure),
                (None, NodeStatus::Down(reason)) if !is_current => Err(reason),
                _ => self.keep_places_at(index, true).await,
            };
            match attempt {
                Ok(()) => return,
                Err(reason) => reasons.push(reason),
            }
        }
        self.conductor = None;
        self.tickets.record_failed_search(self.fair.no_conductor(reasons));
    }

    /// Enters the missing tickets on a node, or refreshes the presence there. The node is the conductor from now on.
    async fn keep_places_at(&mut self, index: usize, refresh: bool) -> Result<(), NodeError> {
        let is_current = self.conductor == Some(index);
        if is_current && refresh {
            let reply = self.fair.call(index, &self.spec, QueueAction::Refresh).await?;
            if reply.was_present {
                self.apply(&reply);
            } else {
                self.tickets.forget_entries();
            }
        }
        let missing = self.tickets.take_missing(!is_current);
        if !missing.is_empty() {
            let action = QueueAction::Enter { tickets: missing.as_slice().into() };
            let reply = self.fair.call(index, &self.spec, action).await?;
            if self.tickets.record_entered(&missing, is_current && reply.was_present) {
                self.tickets.wake_attendant();
            }
            self.move_to(index);
            self.apply(&reply);
            // The waiters that have entered may be behind those of other processes now.
            self.tickets.notify();
        }
        if !self.tickets.is_first() {
            self.subscribe(index).await?;
        }
        Ok(())
    }

    /// Makes a node the conductor.
    fn move_to(&mut self, index: usize) {
        let former = std::mem::replace(&mut self.latest, index);
        self.conductor = Some(index);
        self.fair.record_conductor(index);
        if former != index {
            // The former conductor may be silent.
            let (fair, spec) = (Arc::clone(&self.fair), self.spec.clone());
            let numbers =
                self.tickets.take_missing(true).iter().map(|ticket| ticket.number).collect();
            self.fair.ballot.home.spawn(async move {
                let _ = fair.call(former, &spec, QueueAction::Leave { numbers }).await;
            });
        }
    }

    /// Subscribes to the notifications of a node, unless this process has subscribed already. Waits until the subscription is
    /// in effect, and then looks at the order once more.
    async fn subscribe(&mut self, index: usize) -> Result<(), NodeError> {
        if matches!(self.subscription, Some((node, _)) if node == index)
            || !self.tickets.has_waiters()
        {
            return Ok(());
        }
        let message = Arc::clone(&self.message);
        let notify = Arc::new(move || message.notify_one());
        let ballot = &self.fair.ballot;
        let mut subscription =
            ballot.nodes[index].subscribe_queue(&self.spec, self.fair.process, notify);
        let ready = subscription.take_ready();
        self.subscription = Some((index, subscription));
        if let Some(ready) = ready {
            let _ = timeout(ballot.node_timeout, ready).await;
        }
        let reply = self.fair.call(index, &self.spec, QueueAction::Refresh).await?;
        self.apply(&reply);
        Ok(())
    }

    fn apply(&mut self, reply: &QueueReply) {
        if let Some(due) = self.tickets.apply(self.fair.process, reply) {
            self.due = self.due.min(due);
        }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        // The runtime may have ended, and with it all waiting.
        self.fair.remove_unused(&self.spec, &self.tickets);
    }
}
