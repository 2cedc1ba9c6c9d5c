//! Keeps the tickets of this process in one fair queue.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{OptionFuture, join_all};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::fair_queues::FairQueues;
use super::prompt_task::PromptTask;
use super::tickets::Tickets;
use crate::error::NodeError;
use crate::lock::{LockSpec, Mode};
use crate::node::{NodeStatus, QueueAction, QueueReply, Subscription};

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
    spec: LockSpec,
    tickets: Arc<Tickets>,
    /// The index of the node that keeps the order.
    conductor: Option<usize>,
    /// The indices of the nodes that may have tickets of this process.
    entered_at: Vec<usize>,
    /// Returns the index of the first node before the conductor that answers. The waiters do not wait for that.
    probe: Option<Pin<Box<dyn Future<Output = Option<usize>> + Send>>>,
    subscription: Option<(usize, Subscription)>,
    /// Notified by the conductor when the first ticket may be one of this process.
    message: Arc<Notify>,
    /// When to refresh the presence.
    due: Instant,
    /// Why the last node that was asked does not keep the order.
    last_failure: Option<NodeError>,
}

/// Starts the attendant of a queue that has a first waiter.
pub(super) fn start(fair: &Arc<FairQueues>, spec: &LockSpec, tickets: &Arc<Tickets>) -> PromptTask {
    let ballot = &fair.queues.ballot;
    let mut statuses = ballot.statuses.iter();
    let first_up = statuses.position(|status| status.get().is_up()).unwrap_or_default();
    let attendant = Attendant {
        fair: Arc::clone(fair),
        spec: spec.clone(),
        tickets: Arc::clone(tickets),
        conductor: Some(first_up),
        entered_at: Vec::new(),
        probe: None,
        subscription: None,
        message: Arc::default(),
        due: Instant::now() + REFRESH,
        last_failure: None,
    };
    PromptTask::spawn(&fair.queues.home, Box::pin(attendant.attend()))
}

impl Attendant {
    async fn attend(mut self) {
        let (tickets, message) = (Arc::clone(&self.tickets), Arc::clone(&self.message));
        let closed = self.fair.queues.closed.clone();
        let mut is_back = None;
        loop {
            // A shutdown in the next round trip needs another turn.
            let is_closed = closed.is_cancelled();
            self.leave(is_closed).await;
            if self.is_done(is_closed) {
                return;
            }
            closed.run_until_cancelled(self.tend_tickets(is_back.take())).await;
            tokio::select! {
                biased;
                () = closed.cancelled() => {}
                () = tickets.wake.notified() => {}
                () = message.notified() => self.due = Instant::now(),
                () = sleep_until(self.due) => {}
                Some(index) = OptionFuture::from(self.probe.as_mut()) => {
                    self.probe = None;
                    is_back = index;
                }
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
        // A node that is not the conductor may be silent.
        let (conductor, others): (Vec<_>, Vec<_>) =
            self.entered_at.iter().partition(|index| self.conductor == Some(**index));
        if !others.is_empty() {
            self.remove_in_background(others, gone.clone());
        }
        for reply in remove(&self.fair, &self.spec, &conductor, gone).await.into_iter().flatten() {
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

    /// Enters the tickets that the conductor does not have, and refreshes the presence if that is due. Moves to another node
    /// if the conductor fails, or if the node `is_back`, which stands before it, answers.
    async fn tend_tickets(&mut self, is_back: Option<usize>) {
        let is_due = self.due <= Instant::now();
        if is_due {
            self.due = Instant::now() + REFRESH;
        }
        if self.has_stalled() {
            return;
        }
        let Some(conductor) = self.conductor else { return self.search(None).await };
        if let Some(index) = is_back.filter(|index| *index < conductor)
            && self.tend_tickets_at(index, false).await.is_ok()
        {
            return;
        }
        if let Err(failure) = self.tend_tickets_at(conductor, is_due).await {
            self.search(Some(failure)).await;
        } else if is_due && conductor > 0 {
            let (fair, spec) = (Arc::clone(&self.fair), self.spec.clone());
            let probe = async move { Some(fair.inspect(&spec, conductor).await.ok()?.0) };
            self.probe.get_or_insert_with(|| Box::pin(probe));
        }
    }

    fn has_stalled(&self) -> bool {
        // A holder in any mode may keep the first waiter from asking, so this asks for an exclusive lock.
        let spec = self.spec.with_mode(Mode::Exclusive);
        self.fair.queues.local_conflict(&spec).is_none() && self.tickets.has_stalled(STALL)
    }

    /// Asks the nodes in their order until one of them keeps the order.
    async fn search(&mut self, mut failure: Option<NodeError>) {
        let former = self.conductor;
        let fair = Arc::clone(&self.fair);
        let mut reasons = Vec::new();
        for (index, status) in fair.queues.ballot.statuses.iter().enumerate() {
            let failed = failure.take_if(|_| former == Some(index));
            let attempt = match (failed, status.get()) {
                (Some(reason), _) | (None, NodeStatus::Down(reason)) => Err(reason),
                (None, NodeStatus::Up | NodeStatus::Connecting) => {
                    self.tend_tickets_at(index, false).await
                }
            };
            match attempt {
                Ok(()) => return,
                Err(reason) => {
                    self.last_failure = Some(reason.clone());
                    reasons.push(reason);
                }
            }
        }
        self.conductor = None;
        self.tickets.record_failed_search(fair.no_conductor(reasons));
    }

    /// Enters the missing tickets on a node, or refreshes the presence there. The node is the conductor from now on.
    async fn tend_tickets_at(&mut self, index: usize, refresh: bool) -> Result<(), NodeError> {
        let is_current = self.conductor == Some(index);
        if is_current && refresh {
            self.refresh(index).await?;
        }
        let missing = self.tickets.take_missing(!is_current);
        if !missing.is_empty() {
            if !self.entered_at.contains(&index) {
                self.entered_at.push(index);
            }
            let action = QueueAction::Enter { tickets: missing.as_slice().into() };
            let reply = self.fair.call(index, &self.spec, action).await?;
            if self.tickets.record_entered(is_current && !reply.was_present) {
                self.tickets.wake.notify_one();
            }
            self.move_to(index);
            self.apply(&reply);
            // The waiters that have entered may be behind those of other processes now.
            self.tickets.changed.send_replace(());
        }
        if !self.tickets.is_first() {
            self.subscribe(index).await?;
        }
        Ok(())
    }

    /// Makes a node the conductor.
    fn move_to(&mut self, index: usize) {
        self.conductor = Some(index);
        self.fair.record_conductor(index, self.last_failure.take().as_ref());
        let mut former = std::mem::replace(&mut self.entered_at, vec![index]);
        former.retain(|node| *node != index);
        if !former.is_empty() {
            self.remove_in_background(former, self.tickets.numbers());
        }
    }

    fn remove_in_background(&self, nodes: Vec<usize>, numbers: Vec<u64>) {
        let (fair, spec) = (Arc::clone(&self.fair), self.spec.clone());
        self.fair.queues.home.spawn(async move {
            remove(&fair, &spec, &nodes, numbers).await;
        });
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
        let ballot = &self.fair.queues.ballot;
        if let Some(order) = ballot.nodes[index].fair_order() {
            let mut subscription = order.subscribe_queue(&self.spec, self.fair.process, notify);
            let ready = subscription.take_ready();
            self.subscription = Some((index, subscription));
            if let Some(ready) = ready {
                let _ = timeout(ballot.node_timeout, ready).await;
            }
        }
        self.refresh(index).await
    }

    /// Refreshes the presence, and looks at the order. If the node has forgotten this process, all tickets are missing.
    async fn refresh(&mut self, index: usize) -> Result<(), NodeError> {
        let reply = self.fair.call(index, &self.spec, QueueAction::Refresh).await?;
        if reply.was_present {
            self.apply(&reply);
        } else {
            self.tickets.forget_entries();
        }
        Ok(())
    }

    fn apply(&mut self, reply: &QueueReply) {
        if let Some(due) = self.tickets.apply(self.fair.process, reply) {
            self.due = self.due.min(due);
        }
    }
}

/// Removes the queue from [`FairQueues`], if no caller waits there.
impl Drop for Attendant {
    fn drop(&mut self) {
        // The runtime may have ended, and with it all waiting.
        self.fair.remove_unused(&self.spec, &self.tickets);
    }
}

/// Removes tickets of this process from nodes. Asks all of them at once.
async fn remove(
    fair: &FairQueues,
    spec: &LockSpec,
    nodes: &[usize],
    numbers: Vec<u64>,
) -> Vec<Result<QueueReply, NodeError>> {
    let numbers: Arc<[u64]> = numbers.into();
    let leave = || QueueAction::Leave { numbers: Arc::clone(&numbers) };
    join_all(nodes.iter().map(|index| fair.call(*index, spec, leave()))).await
}
