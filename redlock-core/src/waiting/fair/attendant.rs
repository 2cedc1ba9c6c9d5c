//! Does what the [machine](super::machine) of a fair queue says.

use std::fmt;
use std::mem;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use futures_util::future::{OptionFuture, join_all};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::fair_queues::FairQueues;
use super::machine::{Action, First, Machine, Operation, Reply};
use crate::error::NodeError;
use crate::lock::{LockSpec, Mode};
use crate::node::{NodeStatus, QueueAction, QueueReply, Subscription, Ticket};

/// The fair queue of one lock, as long as this process has waiters there.
pub(crate) struct FairQueue {
    pub(super) fair: Arc<FairQueues>,
    pub(super) spec: LockSpec,
    pub(super) machine: Mutex<Machine<NodeError>>,
    /// How often the position of this process has changed.
    pub(super) changed: watch::Sender<u64>,
    /// Wakes the attendant.
    pub(super) wake: Notify,
    /// Notified by the conductor when the first ticket may be one of this process.
    message: Arc<Notify>,
    /// Set by the first waiter that has entered.
    attendant: OnceLock<()>,
    /// Locked by the thread that does what the machine says.
    tasks: Mutex<Tasks>,
}

/// What the machine has begun.
#[derive(Default)]
struct Tasks {
    /// The attendant takes it, and waits for its end.
    operation: Option<Pending<Event>>,
    /// As the operation.
    probe: Option<Pending<Option<usize>>>,
    subscription: Option<Subscription>,
    /// Whether the attendant has ended, perhaps with its runtime.
    has_ended: bool,
}

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The end of an operation.
enum Event {
    Replied(Result<QueueReply, NodeError>),
    Subscribed,
}

/// The task that waits for replies, notifications and times, one for each queue.
struct Attendant(Arc<FairQueue>);

impl FairQueue {
    pub(super) fn new(fair: &Arc<FairQueues>, spec: &LockSpec) -> Arc<Self> {
        let statuses = &fair.queues.ballot.statuses;
        let first_up = statuses.iter().position(|status| status.get().is_up()).unwrap_or_default();
        Arc::new(Self {
            fair: Arc::clone(fair),
            spec: spec.clone(),
            machine: Mutex::new(Machine::new(statuses.len(), first_up, Instant::now())),
            changed: watch::Sender::new(0),
            wake: Notify::new(),
            message: Arc::default(),
            attendant: OnceLock::new(),
            tasks: Mutex::default(),
        })
    }

    /// Returns whether the first ticket of all is a ticket of this process.
    pub(crate) fn is_first(&self) -> bool {
        self.machine.lock().is_first()
    }

    /// Starts the attendant, unless it runs already.
    pub(super) fn start(self: &Arc<Self>) {
        self.attendant.get_or_init(|| {
            // Outside of the future, which a runtime that ends drops without a poll.
            let attendant = Attendant(Arc::clone(self));
            self.fair.queues.home.spawn(async move { attendant.attend().await });
        });
    }

    /// Does what the machine says in the thread of a caller, unless another thread does so at the moment. So a ticket was sent,
    /// or removed, when the caller returns, unless another operation is under way. Returns whether there is no attendant (any
    /// more).
    pub(super) fn drive_here(self: &Arc<Self>) -> bool {
        // Whatever this thread leaves is for the attendant.
        let is_at_end_of_thread =
            Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        if let Some(mut tasks) = self.tasks.try_lock()
            && !is_at_end_of_thread
        {
            // A node may have timers, which are those of the home.
            let runtime = self.fair.queues.home.runtime();
            let _entered = runtime.as_ref().map(Handle::enter);
            if self.attendant.get().is_none() || self.drive(&mut tasks).is_break() {
                return true;
            }
        }
        self.wake.notify_one();
        false
    }

    /// Does what the machine says until it waits. Returns until when.
    fn drive(self: &Arc<Self>, tasks: &mut Tasks) -> ControlFlow<(), Option<Instant>> {
        while !tasks.has_ended {
            let is_held = self.machine.lock().may_have_stalled(Instant::now()) && self.is_held();
            let action = self.machine.lock().next(Instant::now(), is_held);
            match action {
                Action::Call(node, operation) => tasks.operation = self.call(node, operation),
                Action::Check(node) => {
                    let is_down = match self.fair.queues.ballot.statuses[node].get() {
                        NodeStatus::Down(reason) => Some(reason),
                        NodeStatus::Up | NodeStatus::Connecting => None,
                    };
                    self.machine.lock().checked(is_down, Instant::now());
                }
                Action::Subscribe(node) => self.subscribe(node, tasks),
                Action::Probe(nodes) => {
                    let queue = Arc::clone(self);
                    tasks.probe = Some(Box::pin(async move {
                        Some(queue.fair.inspect(&queue.spec, nodes).await.ok()?.0)
                    }));
                }
                Action::Remove(nodes, numbers) => {
                    let queue = Arc::clone(self);
                    self.fair.queues.home.spawn(async move {
                        let leave = queue_action(Operation::Leave(numbers));
                        let leave = |node| queue.fair.call(node, &queue.spec, leave.clone());
                        join_all(nodes.into_iter().map(leave)).await;
                    });
                }
                Action::Record(node, failure) => {
                    self.fair.record_conductor(node, failure.as_ref());
                }
                Action::Wait(until) => {
                    let changes = self.machine.lock().changes();
                    self.changed.send_if_modified(|sent| mem::replace(sent, changes) != changes);
                    return ControlFlow::Continue(until);
                }
                Action::End => tasks.has_ended = self.fair.remove_if(self, Machine::has_ended),
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
    fn call(self: &Arc<Self>, node: usize, operation: Operation) -> Option<Pending<Event>> {
        let mut call = self.fair.begin(node, &self.spec, queue_action(operation));
        if let Some(reply) = call.poll_once() {
            self.record(Event::Replied(reply));
            return None;
        }
        let fair = Arc::clone(&self.fair);
        Some(Box::pin(async move { Event::Replied(fair.finish(call).await) }))
    }

    fn subscribe(&self, node: usize, tasks: &mut Tasks) {
        let (ballot, message) = (&self.fair.queues.ballot, Arc::clone(&self.message));
        let order = ballot.nodes[node].fair_order();
        tasks.subscription = order.map(|order| {
            let notify = Arc::new(move || message.notify_one());
            order.subscribe_queue(&self.spec, self.fair.process, notify)
        });
        match tasks.subscription.as_mut().and_then(Subscription::take_ready) {
            None => self.record(Event::Subscribed),
            Some(ready) => {
                let limit = ballot.node_timeout;
                tasks.operation = Some(Box::pin(async move {
                    let _ = timeout(limit, ready).await;
                    Event::Subscribed
                }));
            }
        }
    }

    fn record(&self, event: Event) {
        let mut machine = self.machine.lock();
        match event {
            Event::Replied(reply) => {
                let first = |reply: &QueueReply| {
                    let first = reply.first?;
                    let is_own = first.process == self.fair.process;
                    Some(if is_own {
                        First::Own(first.number)
                    } else {
                        First::Other(first.present_for)
                    })
                };
                let reply = reply.map(|r| Reply { was_present: r.was_present, first: first(&r) });
                machine.replied(reply, Instant::now());
            }
            Event::Subscribed => machine.subscribed(),
        }
    }
}

impl Attendant {
    async fn attend(&self) {
        let queue = &self.0;
        let closed = queue.fair.queues.closed.clone();
        let (mut operation, mut probe, mut is_closed) = (None, None, false);
        loop {
            let until = {
                let mut tasks = queue.tasks.lock();
                if closed.is_cancelled() && !mem::replace(&mut is_closed, true) {
                    let is_abandoned = queue.machine.lock().close();
                    operation = tasks.operation.take().or(operation).filter(|_| !is_abandoned);
                }
                let ControlFlow::Continue(until) = queue.drive(&mut tasks) else { return };
                operation = tasks.operation.take().or(operation);
                probe = tasks.probe.take().or(probe);
                until
            };
            tokio::select! {
                biased;
                () = closed.cancelled(), if !is_closed => {}
                Some(event) = OptionFuture::from(operation.as_mut()) => {
                    operation = None;
                    queue.record(event);
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
        let mut tasks = self.0.tasks.lock();
        tasks.has_ended = true;
        // Dropped after the lock, because they may wake other tasks.
        let _dropped = (tasks.operation.take(), tasks.probe.take(), tasks.subscription.take());
        drop(tasks);
        self.0.fair.remove_if(&self.0, |machine| !machine.has_waiters());
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

impl fmt::Debug for FairQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairQueue").field("machine", &self.machine).finish_non_exhaustive()
    }
}
