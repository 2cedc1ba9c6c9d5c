//! A node whose behaviour the test controls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::{
    Action, Capabilities, FairOrder, Node, NodeStatus, Notify, Op, ProcessId, QueueFuture, QueueOp,
    Reconnection, Remote, Reply, ReplyFuture, Silence, StatusReceiver, StatusSender, Subscription,
};
use crate::clock::fake::RuntimeClock;
use crate::error::{NodeError, Vote};
use crate::lock::{HolderId, LockSpec};
use crate::store::memory::MemoryNode;

/// A node that executes operations in order, like a server with the commands of one connection.
pub(crate) struct FakeNode {
    name: Arc<str>,
    operations: mpsc::UnboundedSender<(Operation, oneshot::Sender<(Vote, i64)>)>,
    mode: watch::Sender<FakeMode>,
    store: Arc<Mutex<FakeStore>>,
    status: StatusSender,
    /// All callbacks that were ever subscribed.
    subscribers: Mutex<Vec<Notify>>,
    /// Whether `silence` reports the silence of a node that does not reply. Otherwise it reports
    /// `CheckAgainAfter`, like in a process that reads replies late.
    reports_silence: AtomicBool,
    counts_subscribers: AtomicBool,
    /// Whether the silence counts from the first call of `silence`, as if the node did not know
    /// before that the store owes a reply.
    measures_from_first_look: AtomicBool,
    first_look: Mutex<Option<Instant>>,
    /// How many operations have failed because the node, or the part of it that has the lock, was not connected.
    unsent: AtomicUsize,
    /// How many acquisitions asked for the rest of the present lease.
    lookups: AtomicUsize,
    /// How many replies nobody received: their futures were dropped before.
    abandoned: Arc<AtomicUsize>,
    /// How long an attempt to connect takes. Without a time it fails at once.
    reconnects_after: Mutex<Option<Duration>>,
    /// The store of the fair queues.
    pub(crate) queues: MemoryNode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FakeMode {
    /// Replies after this delay.
    Up(Duration),
    /// Accepts operations, and executes them only when the mode changes.
    Frozen,
    /// Fails every operation without sending it: the node is not connected.
    Down,
    /// Fails every operation without sending it, but the node is up: the part of it that has the lock is not connected.
    Unreachable,
    /// Executes operations, but the connection breaks before the reply.
    AnswerLost,
    /// Executes operations, but reports that the store did not reply in time.
    TimedOut,
    /// Sets the lock, but the reply is not understood.
    UnexpectedReply,
    /// Executes operations, but its grants do not count: the clock of the server has stepped.
    ClockStepped,
    /// Fails acquisitions without sending them: the server is quarantined.
    Quarantined,
    /// The connection has just broken, but the node does not report it: every operation fails at
    /// its first poll.
    Broken,
    /// Refuses every operation, because the user lacks a permission.
    Forbidden,
    /// Fails every operation, because the password is wrong.
    WrongPassword,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    Acquire(String, Duration),
    Extend(String, Duration),
    Release(String),
    Confirm(String, i64),
}

#[derive(Debug, Default)]
struct FakeStore {
    /// The token of the lock, and the end of its lease. The store has one lock only.
    holder: Option<(String, Instant)>,
    log: Vec<Operation>,
    /// The fencing counter.
    counter: i64,
}

impl FakeStore {
    fn execute(&mut self, operation: &Operation) -> Vote {
        self.log.push(operation.clone());
        let now = Instant::now();
        self.holder.take_if(|(_, until)| *until <= now);
        let holder = self.holder.as_ref().map(|(token, until)| (token.as_str(), *until - now));
        match (operation, holder) {
            (Operation::Acquire(token, expire), None) => {
                self.holder = Some((token.clone(), now + *expire));
                self.counter += 1;
                Vote::Agreed
            }
            (Operation::Acquire(..), Some((holder, remaining))) => {
                Vote::held_by(HolderId::of(holder), Some(remaining))
            }
            (Operation::Extend(token, expire), Some((own, remaining))) if own == token => {
                self.holder = Some((token.clone(), now + remaining.max(*expire)));
                Vote::Agreed
            }
            (Operation::Release(token), Some((own, _))) if own == token => {
                self.holder = None;
                Vote::Agreed
            }
            (Operation::Confirm(token, number), Some((own, _))) if own == token => {
                self.counter = self.counter.max(*number);
                Vote::Agreed
            }
            (Operation::Extend(..) | Operation::Release(_) | Operation::Confirm(..), _) => {
                Vote::NotHeld
            }
        }
    }
}

impl FakeNode {
    pub(crate) fn start(name: &str) -> Arc<Self> {
        redlock_logs::watch();
        let (operations, mut inbox) =
            mpsc::unbounded_channel::<(Operation, oneshot::Sender<(Vote, i64)>)>();
        let (mode, mut changes) = watch::channel(FakeMode::Up(Duration::ZERO));
        let store = Arc::new(Mutex::new(FakeStore::default()));
        let executed = Arc::clone(&store);
        tokio::spawn(async move {
            while let Some((operation, answer)) = inbox.recv().await {
                let not_frozen = |mode: &FakeMode| *mode != FakeMode::Frozen;
                let Ok(mode) = changes.wait_for(not_frozen).await.map(|mode| *mode) else { return };
                if let FakeMode::Up(delay) = mode
                    && !delay.is_zero()
                {
                    sleep(delay).await;
                }
                let (vote, number) = {
                    let mut store = executed.lock();
                    (store.execute(&operation), store.counter)
                };
                let vote = match mode {
                    FakeMode::AnswerLost => {
                        Vote::Failed(NodeError::ConnectionBroke("reset".into()))
                    }
                    FakeMode::TimedOut => {
                        Vote::Failed(NodeError::NoReply(Duration::from_millis(20)))
                    }
                    FakeMode::UnexpectedReply if matches!(operation, Operation::Acquire(..)) => {
                        Vote::Failed(NodeError::UnexpectedReply)
                    }
                    FakeMode::ClockStepped if matches!(operation, Operation::Acquire(..)) => {
                        clock_stepped()
                    }
                    _ => vote,
                };
                let _ = answer.send((vote, number));
            }
        });
        Arc::new(Self {
            name: name.into(),
            operations,
            mode,
            store,
            status: StatusSender::new(NodeStatus::Up),
            subscribers: Mutex::default(),
            reports_silence: AtomicBool::new(true),
            counts_subscribers: AtomicBool::new(true),
            measures_from_first_look: AtomicBool::new(false),
            first_look: Mutex::default(),
            unsent: AtomicUsize::new(0),
            lookups: AtomicUsize::new(0),
            abandoned: Arc::default(),
            reconnects_after: Mutex::default(),
            queues: MemoryNode::with_clock(Arc::new(RuntimeClock::new())),
        })
    }

    pub(crate) fn set(&self, mode: FakeMode) {
        self.mode.send_replace(mode);
        self.status.send(match mode {
            FakeMode::Down => NodeStatus::Down(refused()),
            _ => NodeStatus::Up,
        });
    }

    /// Sets whether `silence` reports the silence of the node. If not, this process looks as if it
    /// read replies late.
    pub(crate) fn set_reports_silence(&self, reports: bool) {
        self.reports_silence.store(reports, Ordering::Relaxed);
    }

    /// Makes the number of notified subscribers unknown. By default, a release notifies none.
    pub(crate) fn forget_subscribers(&self) {
        self.counts_subscribers.store(false, Ordering::Relaxed);
    }

    /// Makes the silence count from the first call of `silence`.
    pub(crate) fn measure_silence_from_first_look(&self) {
        self.measures_from_first_look.store(true, Ordering::Relaxed);
    }

    /// Lets an attempt to connect succeed after this time, or fail at once.
    pub(crate) fn set_reconnects_after(&self, time: Option<Duration>) {
        *self.reconnects_after.lock() = time;
    }

    /// Returns whether the node has a lock.
    pub(crate) fn is_held(&self) -> bool {
        let now = Instant::now();
        self.store.lock().holder.as_ref().is_some_and(|(_, until)| *until > now)
    }

    /// Sets the lock of another process.
    pub(crate) fn occupy(&self, expire: Duration) {
        self.occupy_by("other", expire);
    }

    /// Sets a lock for the holder with this token.
    pub(crate) fn occupy_by(&self, token: &str, expire: Duration) {
        self.store.lock().holder = Some((token.to_owned(), Instant::now() + expire));
    }

    /// Removes the lock, as a restart without the data does.
    pub(crate) fn forget(&self) {
        self.store.lock().holder = None;
    }

    /// Notifies all subscribers, as if the lock was released.
    pub(crate) fn publish_release(&self) {
        for notify in &*self.subscribers.lock() {
            notify();
        }
    }

    /// Returns the number of subscriptions so far.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscribers.lock().len()
    }

    /// Sets the fencing counter.
    pub(crate) fn set_counter(&self, count: i64) {
        self.store.lock().counter = count;
    }

    /// Returns how many operations have failed because the node was unreachable.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Relaxed)
    }

    /// Returns how many acquisitions asked for the rest of the present lease.
    pub(crate) fn lookups(&self) -> usize {
        self.lookups.load(Ordering::Relaxed)
    }

    /// Returns how many replies nobody received, because their futures were dropped before.
    pub(crate) fn abandoned(&self) -> usize {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Returns the operations that the node has executed.
    pub(crate) fn log(&self) -> Vec<Operation> {
        self.store.lock().log.clone()
    }

    /// Returns the number of releases that the node has executed.
    pub(crate) fn releases(&self) -> usize {
        self.log().iter().filter(|operation| matches!(operation, Operation::Release(_))).count()
    }

    fn send(&self, operation: Operation) -> ReplyFuture {
        let failed = |error| ReplyFuture::ready(Vote::Failed(error));
        let is_acquisition = matches!(operation, Operation::Acquire(..));
        match *self.mode.borrow() {
            FakeMode::Down | FakeMode::Unreachable => {
                self.unsent.fetch_add(1, Ordering::Relaxed);
                return failed(refused());
            }
            FakeMode::Broken => {
                let broke = NodeError::ConnectionBroke("reset".into());
                return ReplyFuture::new(async move { Vote::Failed(broke).into() });
            }
            FakeMode::Forbidden => return failed(NodeError::NotPermitted("SET".into())),
            FakeMode::WrongPassword => return failed(NodeError::Credentials("refused".into())),
            FakeMode::Quarantined if is_acquisition => return ReplyFuture::ready(clock_stepped()),
            _ => {}
        }
        let operations = self.operations.clone();
        let counts_subscribers = self.counts_subscribers.load(Ordering::Relaxed);
        let unread = Unread(Some(Arc::clone(&self.abandoned)));
        ReplyFuture::new(async move {
            let (sender, answer) = oneshot::channel();
            let _ = operations.send((operation, sender));
            let answer = answer.await;
            unread.received();
            let Ok((vote, number)) = answer else {
                return Vote::Failed(NodeError::ConnectionBroke("gone".into())).into();
            };
            let is_numbered = vote == Vote::Agreed && is_acquisition;
            let reply = Reply::new(vote);
            let reply = if counts_subscribers { reply.with_subscribers(0) } else { reply };
            if is_numbered { reply.with_number(number) } else { reply }
        })
    }
}

/// A reply that nobody has received yet. Counts as abandoned when it is dropped.
struct Unread(Option<Arc<AtomicUsize>>);

impl Unread {
    fn received(mut self) {
        self.0 = None;
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(abandoned) = &self.0 {
            abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn refused() -> NodeError {
    NodeError::NotConnected("refused".into())
}

fn clock_stepped() -> Vote {
    let (by, votes_in) = (Duration::from_secs(60), Duration::from_secs(1));
    Vote::Failed(NodeError::ClockStepped { by, votes_in })
}

impl fmt::Debug for FakeNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeNode").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Node for FakeNode {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { shared: false, ..Capabilities::of_library() }
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let token = op.token.text().to_string();
        if matches!(op.action, Action::Acquire { ask, .. } if !ask.skip_lookup) {
            self.lookups.fetch_add(1, Ordering::Relaxed);
        }
        self.send(match op.action {
            Action::Acquire { lease, .. } => Operation::Acquire(token, lease),
            Action::Extend { lease } => Operation::Extend(token, lease),
            Action::Confirm { number } => Operation::Confirm(token, number),
            Action::Release { .. } => Operation::Release(token),
            Action::Downgrade if *self.mode.borrow() == FakeMode::Frozen => {
                return ReplyFuture::new(std::future::pending());
            }
            Action::Downgrade | Action::Withdraw { .. } => {
                let error = NodeError::Server("unknown action".into());
                return ReplyFuture::ready(Vote::Failed(error));
            }
        })
    }

    /// Publishes no release by itself, see `publish_release`. The subscription is ready as soon as the
    /// node could reply.
    fn subscribe(&self, _: &LockSpec, notify: Notify) -> Subscription {
        self.subscribers.lock().push(notify);
        let mut mode = self.mode.subscribe();
        Subscription::new(|| {}).ready_after(async move {
            let mode = mode.wait_for(|mode| *mode != FakeMode::Frozen).await.map(|mode| *mode);
            if let Ok(FakeMode::Up(delay)) = mode {
                sleep(delay).await;
            }
        })
    }

    fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn fair_order(&self) -> Option<&dyn FairOrder> {
        Some(self)
    }
}

impl FairOrder for FakeNode {
    /// A node that is not up fails, or does not reply and never executes the operation.
    fn queue(&self, op: QueueOp) -> QueueFuture {
        match *self.mode.borrow() {
            FakeMode::Up(delay) => {
                let queues = self.queues.clone();
                Box::pin(async move {
                    let reply = queues.queue(op);
                    if !delay.is_zero() {
                        sleep(delay).await;
                    }
                    reply.await
                })
            }
            FakeMode::Frozen => Box::pin(std::future::pending()),
            _ => Box::pin(std::future::ready(Err(refused()))),
        }
    }

    fn subscribe_queue(&self, spec: &LockSpec, process: ProcessId, notify: Notify) -> Subscription {
        self.queues.subscribe_queue(spec, process, notify)
    }
}

impl Remote for FakeNode {
    fn reconnect(&self, _: &LockSpec) -> Reconnection {
        let time = *self.reconnects_after.lock();
        Box::pin(async move {
            if let Some(time) = time {
                sleep(time).await;
            }
            time.is_some()
        })
    }

    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        let mut silent_for = waited;
        if self.measures_from_first_look.load(Ordering::Relaxed) {
            silent_for = self.first_look.lock().get_or_insert_with(Instant::now).elapsed();
        }
        if silent_for < limit {
            Silence::CheckAgainAfter(limit.saturating_sub(silent_for))
        } else if self.reports_silence.load(Ordering::Relaxed) {
            Silence::Silent(waited)
        } else {
            Silence::CheckAgainAfter(limit)
        }
    }
}
