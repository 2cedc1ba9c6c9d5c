//! Does what the [machine](super::machine) of a fair queue says.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;

use futures_util::future::{OptionFuture, join_all};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};

use super::fair_queues::FairQueues;
use super::machine::{FairAction, FairMachine, FairReply, First, Operation};
use super::queue::{FairQueue, FairTask, FairTasks, TaskEnd};
use crate::lock::{LockSpec, Mode};
use crate::node::{NodeStatus, QueueAction, QueueReply, Subscription, Ticket};

/// A fair queue, and what its machine needs to act.
#[derive(Debug, Clone)]
pub(super) struct FairDriver {
    pub(super) fair: Arc<FairQueues>,
    pub(super) spec: LockSpec,
    pub(super) queue: Arc<FairQueue>,
}

/// The task that waits for replies, notifications and times, one for each queue.
struct Attendant(FairDriver);

impl FairDriver {
    /// Starts the attendant, unless it runs already.
    pub(super) fn start(&self) {
        self.queue.attendant.get_or_init(|| {
            // Outside of the future, which a runtime that ends drops without a poll.
            let attendant = Attendant(self.clone());
            self.fair.queues.home.spawn(async move { attendant.attend().await });
        });
    }

    /// Does what the machine says in the thread of a caller, unless another thread does so at the moment. So a ticket was sent,
    /// or removed, when the caller returns, unless another operation is under way. Returns whether there is no attendant (any
    /// more).
    pub(super) fn drive_here(&self) -> bool {
        // The attendant takes the steps that this thread does not take.
        let is_at_end_of_thread =
            Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        if let Some(mut tasks) = self.queue.tasks.try_lock()
            && !is_at_end_of_thread
        {
            // A node may have timers, which are those of the home.
            let runtime = self.fair.queues.home.runtime();
            let _entered = runtime.as_ref().map(Handle::enter);
            if self.queue.attendant.get().is_none() || self.drive(&mut tasks).is_break() {
                return true;
            }
        }
        self.queue.wake.notify_one();
        false
    }

    /// Does what the machine says until it waits. Returns until when.
    fn drive(&self, tasks: &mut FairTasks) -> ControlFlow<(), Option<Instant>> {
        while !tasks.has_ended {
            let is_held =
                self.queue.machine.lock().may_have_stalled(Instant::now()) && self.is_held();
            let action = self.queue.machine.lock().next(Instant::now(), is_held);
            match action {
                FairAction::Call(node, operation) => tasks.operation = self.call(node, operation),
                FairAction::Check(node) => {
                    let is_down = match self.fair.queues.ballot.statuses[node].get() {
                        NodeStatus::Down(reason) => Some(reason),
                        NodeStatus::Up | NodeStatus::Connecting => None,
                    };
                    self.queue.machine.lock().checked(is_down, Instant::now());
                }
                FairAction::Subscribe(node) => self.subscribe(node, tasks),
                FairAction::Probe(nodes) => {
                    let driver = self.clone();
                    tasks.probe = Some(Box::pin(async move {
                        Some(driver.fair.inspect(&driver.spec, nodes).await.ok()?.0)
                    }));
                }
                FairAction::Remove(nodes, numbers) => {
                    let driver = self.clone();
                    self.fair.queues.home.spawn(async move {
                        let leave = queue_action(Operation::Leave(numbers));
                        let leave = |node| driver.fair.call(node, &driver.spec, leave.clone());
                        join_all(nodes.into_iter().map(leave)).await;
                    });
                }
                FairAction::Record(node, failure) => {
                    self.fair.record_conductor(node, failure.as_ref());
                }
                FairAction::Wait(until) => {
                    let changes = self.queue.machine.lock().changes();
                    self.queue
                        .changed
                        .send_if_modified(|sent| mem::replace(sent, changes) != changes);
                    return ControlFlow::Continue(until);
                }
                FairAction::End => {
                    tasks.has_ended =
                        self.fair.remove_if(&self.spec, &self.queue, FairMachine::has_ended);
                }
            }
        }
        ControlFlow::Break(())
    }

    /// Returns whether a holder of this process, in any mode, may keep the first waiter from asking.
    fn is_held(&self) -> bool {
        let spec = self.spec.with_mode(Mode::Exclusive);
        self.fair.queues.local_conflict(&spec).is_some()
    }

    /// Sends an operation. Returns it if its reply is pending.
    fn call(&self, node: usize, operation: Operation) -> Option<FairTask<TaskEnd>> {
        let mut call = self.fair.begin(node, &self.spec, queue_action(operation));
        if let Some(reply) = call.poll_once() {
            self.record(TaskEnd::Replied(reply));
            return None;
        }
        let fair = Arc::clone(&self.fair);
        Some(Box::pin(async move { TaskEnd::Replied(fair.finish(call).await) }))
    }

    fn subscribe(&self, node: usize, tasks: &mut FairTasks) {
        let (ballot, message) = (&self.fair.queues.ballot, Arc::clone(&self.queue.message));
        let order = ballot.nodes[node].fair_order();
        tasks.subscription = order.map(|order| {
            let notify = Arc::new(move || message.notify_one());
            order.subscribe_queue(&self.spec, self.fair.process, notify)
        });
        match tasks.subscription.as_mut().and_then(Subscription::take_ready) {
            None => self.record(TaskEnd::Subscribed),
            Some(ready) => {
                let limit = ballot.node_timeout;
                tasks.operation = Some(Box::pin(async move {
                    let _ = timeout(limit, ready).await;
                    TaskEnd::Subscribed
                }));
            }
        }
    }

    fn record(&self, event: TaskEnd) {
        let mut machine = self.queue.machine.lock();
        match event {
            TaskEnd::Replied(reply) => {
                let first = |reply: &QueueReply| {
                    let first = reply.first?;
                    let is_own = first.process == self.fair.process;
                    Some(if is_own {
                        First::Own(first.number)
                    } else {
                        First::Other(first.present_for)
                    })
                };
                let reply =
                    reply.map(|r| FairReply { was_present: r.was_present, first: first(&r) });
                machine.replied(reply, Instant::now());
            }
            TaskEnd::Subscribed => machine.subscribed(),
        }
    }
}

impl Attendant {
    async fn attend(&self) {
        let Self(driver) = self;
        let (queue, closed) = (&driver.queue, driver.fair.queues.closed.clone());
        let (mut operation, mut probe, mut is_closed) = (None, None, false);
        loop {
            let until = {
                let mut tasks = queue.tasks.lock();
                if closed.is_cancelled() && !mem::replace(&mut is_closed, true) {
                    let is_abandoned = queue.machine.lock().close();
                    operation = tasks.operation.take().or(operation).filter(|_| !is_abandoned);
                }
                let ControlFlow::Continue(until) = driver.drive(&mut tasks) else { return };
                operation = tasks.operation.take().or(operation);
                probe = tasks.probe.take().or(probe);
                until
            };
            tokio::select! {
                biased;
                () = closed.cancelled(), if !is_closed => {}
                Some(event) = OptionFuture::from(operation.as_mut()) => {
                    operation = None;
                    driver.record(event);
                }
                () = queue.wake.notified() => {}
                () = queue.message.notified() => queue.machine.lock().notified(Instant::now()),
                Some(()) = OptionFuture::from(until.map(sleep_until)) => {}
                Some(index) = OptionFuture::from(probe.as_mut()) => {
                    probe = None;
                    queue.machine.lock().probed(index);
                }
            }
        }
    }
}

/// Ends the queue, also with the runtime. Waits for a caller that polls a node at the moment: the timers of nodes panic after
/// the end of the runtime.
impl Drop for Attendant {
    fn drop(&mut self) {
        let Self(FairDriver { fair, spec, queue }) = self;
        let mut tasks = queue.tasks.lock();
        tasks.has_ended = true;
        // Dropped after the lock, because they may wake other tasks.
        let _dropped = (tasks.operation.take(), tasks.probe.take(), tasks.subscription.take());
        drop(tasks);
        fair.remove_if(spec, queue, |machine| !machine.has_waiters());
    }
}

fn queue_action(operation: Operation) -> QueueAction {
    match operation {
        Operation::Enter(tickets) => {
            let tickets = tickets.into_iter().map(|(number, waited)| Ticket::new(number, waited));
            QueueAction::Enter { tickets: tickets.collect() }
        }
        Operation::Refresh => QueueAction::Refresh,
        Operation::Leave(numbers) => QueueAction::Leave { numbers: numbers.into() },
    }
}
