//! A node in memory whose faults a test controls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::TestClock;
use crate::error::{NodeError, Vote};
use crate::lock::HolderId;
use crate::node::{
    Capabilities, FairOrder, Inspection, LockSpec, LookFuture, LossHints, Node, NodeReport,
    NodeStatus, Notify, Op, ProcessId, QueueFuture, QueueOp, RemovalFuture, ReplyFuture,
    StatusReceiver, StatusSender, Subscription, Turns, delegate,
};
use crate::store::memory::MemoryNode;

/// A node in memory that fails, freezes, slows down or forgets when the test demands it.
///
/// A new node replies at once. [`fail`](Self::fail), [`freeze`](Self::freeze) and [`delay`](Self::delay)
/// change that. Each of them replaces the previous one, and [`recover`](Self::recover) ends them.
///
/// | after | an operation | [`NodeStatus`] |
/// |---|---|---|
/// | `fail` | fails at once with [`NodeError::NotConnected`] | `Down` |
/// | `freeze` | gets no reply. The manager counts the node as failed after its [`node_timeout`](crate::LockManagerBuilder::node_timeout) | `Connecting`, at once |
/// | `delay` | is executed at once; the reply arrives later | `Up` |
/// | `recover` | gets its reply at once | `Up` |
///
/// Cloning is cheap, and the clones are the same node: managers over clones exclude each other, like
/// copies of a service on one Redis.
#[derive(Clone)]
pub struct TestNode {
    store: MemoryNode,
    clock: TestClock,
    status: StatusSender,
    state: Arc<Mutex<NodeState>>,
}

struct NodeState {
    behaviour: Behaviour,
    /// The operations that were sent to the node while it is frozen.
    unread: Vec<UnreadOp>,
    /// Cancelled when the node fails, so that pending replies do not arrive.
    connection: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
enum Behaviour {
    Answering { delay: Duration },
    Failing,
    Frozen,
}

/// Executes an operation that a frozen node has not read yet. The reply arrives after a delay.
type UnreadOp = Box<dyn FnOnce(Duration) + Send>;

impl TestNode {
    /// Creates an empty node. Its leases are measured on the clock of the test.
    pub fn new(clock: &TestClock) -> Self {
        let state = NodeState {
            behaviour: Behaviour::Answering { delay: Duration::ZERO },
            unread: Vec::new(),
            connection: CancellationToken::new(),
        };
        Self {
            store: MemoryNode::with_clock(Arc::new(clock.clone())),
            clock: clock.clone(),
            status: StatusSender::new(NodeStatus::Up),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Disconnects the node: every operation fails at once, as if no process listened on the server's
    /// port.
    ///
    /// Operations whose reply is pending fail with [`NodeError::ConnectionBroke`]. The node keeps its
    /// locks, whose leases continue to run out.
    pub fn fail(&self) {
        let mut state = self.state.lock();
        state.behaviour = Behaviour::Failing;
        state.unread.clear();
        std::mem::take(&mut state.connection).cancel();
        self.status.send(NodeStatus::Down(not_connected()));
    }

    /// Freezes the node: it sends no replies, like a stopped server process or a network that drops all
    /// packets.
    ///
    /// When the node recovers, it executes the operations that it was sent meanwhile, in the order in
    /// which they were sent. The leases of its locks continue to run out.
    ///
    /// The status changes at once, so that a test does not have to wait. For a Redis server, the status stays
    /// `Up` until the manager notices the silence, which takes at least 5 s with an operation pending, and is
    /// `Down` afterwards: [`is_available`](crate::LockManager::is_available) reports the outage later than it
    /// does in a test.
    pub fn freeze(&self) {
        let mut state = self.state.lock();
        state.behaviour = Behaviour::Frozen;
        self.status.send(NodeStatus::Connecting);
    }

    /// Makes the node slow: it executes every operation at once, and its reply arrives after `delay`.
    ///
    /// The delays of concurrent operations overlap: each delay begins with its own operation.
    pub fn delay(&self, delay: Duration) {
        self.answer(delay);
    }

    /// Ends the effect of [`fail`](Self::fail), [`freeze`](Self::freeze) and [`delay`](Self::delay).
    /// Replies that are already delayed keep their delay.
    pub fn recover(&self) {
        self.answer(Duration::ZERO);
    }

    /// Forgets all locks, like a server that is restarted without its data.
    ///
    /// A holder loses its lock when the next renewal or extension finds that a quorum of nodes has
    /// forgotten the lock. Once a quorum has forgotten it, another caller can acquire it at once.
    pub fn forget(&self) {
        self.store.forget();
    }

    /// Returns the rest of a lock's lease by the name of the lock on the node (with the manager's
    /// prefix, if any); `None` if the lock is free.
    pub fn time_to_live(&self, name: &str) -> Option<Duration> {
        self.store.time_to_live(name)
    }

    /// Returns the number of locks on the node.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether no lock is on the node.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    fn answer(&self, delay: Duration) {
        let mut state = self.state.lock();
        state.behaviour = Behaviour::Answering { delay };
        // The mutex of the state is held, so that no later operation overtakes these operations.
        for execute in std::mem::take(&mut state.unread) {
            execute(delay);
        }
        self.status.send(NodeStatus::Up);
    }

    /// Sends an operation and waits for its reply. The first poll executes or queues the operation, so that
    /// operations keep the order of their first polls.
    async fn send<R: Send + 'static>(
        &self,
        operation: impl FnOnce(&MemoryNode) -> R + Send + 'static,
    ) -> Result<R, NodeError> {
        let (sender, replied) = oneshot::channel();
        let store = self.store.clone();
        // The operation is executed even if no caller waits for its reply.
        let execute = move |delay: Duration| drop(sender.send((operation(&store), delay)));
        let connection = {
            let mut state = self.state.lock();
            match state.behaviour {
                Behaviour::Failing => return Err(not_connected()),
                Behaviour::Frozen => state.unread.push(Box::new(execute)),
                Behaviour::Answering { delay } => execute(delay),
            }
            state.connection.clone()
        };
        let arrived = connection.run_until_cancelled(async {
            let (reply, delay) = replied.await.ok()?;
            if !delay.is_zero() {
                self.clock.sleep(delay).await;
            }
            Some(reply)
        });
        let broke = || NodeError::ConnectionBroke("the test has cut the node off".into());
        arrived.await.flatten().ok_or_else(broke)
    }
}

impl Node for TestNode {
    delegate! { store;
        fn name(&self) -> &Arc<str>;
        fn capabilities(&self) -> Capabilities;
        fn store_id(&self) -> Option<Arc<str>>;
        fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription;
        fn turns(&self) -> Option<&dyn Turns>;
        fn loss_hints(&self) -> Option<&dyn LossHints>;
        fn report(&self) -> NodeReport;
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let node = self.clone();
        ReplyFuture::new(async move {
            let sent = node.send(move |store| store.execute(&op)).await;
            sent.unwrap_or_else(|error| Vote::Failed(error).into())
        })
    }

    fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    fn fair_order(&self) -> Option<&dyn FairOrder> {
        Some(self)
    }

    fn inspection(&self) -> Option<&dyn Inspection> {
        Some(self)
    }
}

impl Inspection for TestNode {
    fn look(&self, spec: &LockSpec) -> LookFuture {
        let (node, spec) = (self.clone(), spec.clone());
        Box::pin(async move { node.send(move |store| store.look_at(&spec)).await })
    }

    fn remove(&self, spec: &LockSpec, holder: HolderId) -> RemovalFuture {
        let (node, spec) = (self.clone(), spec.clone());
        Box::pin(async move { node.send(move |store| store.remove_holder(&spec, holder)).await })
    }
}

impl FairOrder for TestNode {
    fn queue(&self, op: QueueOp) -> QueueFuture {
        let node = self.clone();
        Box::pin(async move { node.send(move |store| store.execute_queue(&op)).await })
    }

    fn subscribe_queue(&self, spec: &LockSpec, process: ProcessId, notify: Notify) -> Subscription {
        self.store.subscribe_queue(spec, process, notify)
    }
}

impl fmt::Debug for TestNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestNode")
            .field("name", self.name())
            .field("behaviour", &self.state.lock().behaviour)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

fn not_connected() -> NodeError {
    NodeError::NotConnected("the test has cut the node off".into())
}
