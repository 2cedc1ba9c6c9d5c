//! A node in memory whose faults a test controls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::TestClock;
use crate::error::{NodeError, Vote};
use crate::node::memory::MemoryNode;
use crate::node::{
    Capabilities, LockSpec, Node, NodeStatus, Notify, Op, ProcessId, QueueFuture, QueueOp, Reply,
    ReplyFuture, StatusReceiver, StatusSender, Subscription,
};

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
pub struct TestNode(Arc<SharedNode>);

struct SharedNode {
    clock: TestClock,
    store: MemoryNode,
    status: StatusSender,
    state: Mutex<NodeState>,
}

struct NodeState {
    behaviour: Behaviour,
    /// The operations that were sent to the node while it is frozen.
    unread: Vec<QueuedOp>,
    /// Cancelled when the node fails, so that pending replies do not arrive.
    connection: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
enum Behaviour {
    Answering { delay: Duration },
    Failing,
    Frozen,
}

/// An operation that a frozen node has not read yet.
struct QueuedOp {
    op: Op,
    reply: oneshot::Sender<Delayed>,
}

/// A reply, and the time after which it arrives.
struct Delayed {
    reply: Reply,
    delay: Duration,
}

impl TestNode {
    /// Creates an empty node. Its leases are measured on the clock of the test.
    pub fn new(clock: &TestClock) -> Self {
        let state = NodeState {
            behaviour: Behaviour::Answering { delay: Duration::ZERO },
            unread: Vec::new(),
            connection: CancellationToken::new(),
        };
        Self(Arc::new(SharedNode {
            clock: clock.clone(),
            store: MemoryNode::with_clock(Arc::new(clock.clone())),
            status: StatusSender::new(NodeStatus::Up),
            state: Mutex::new(state),
        }))
    }

    /// Disconnects the node: every operation fails at once, as if no process listened on the server's
    /// port.
    ///
    /// Operations whose reply is pending fail with [`NodeError::ConnectionBroke`]. The node keeps its
    /// locks, whose leases continue to run out.
    pub fn fail(&self) {
        let mut state = self.0.state.lock();
        state.behaviour = Behaviour::Failing;
        state.unread.clear();
        std::mem::take(&mut state.connection).cancel();
        self.0.status.send(NodeStatus::Down(not_connected()));
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
        let mut state = self.0.state.lock();
        state.behaviour = Behaviour::Frozen;
        self.0.status.send(NodeStatus::Connecting);
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
        self.0.store.forget();
    }

    /// Returns the rest of a lock's lease by the name of the lock on the node (with the manager's
    /// prefix, if any); `None` if the lock is free.
    pub fn time_to_live(&self, name: &str) -> Option<Duration> {
        self.0.store.time_to_live(name)
    }

    /// Returns the number of locks on the node.
    pub fn len(&self) -> usize {
        self.0.store.len()
    }

    /// Returns whether no lock is on the node.
    pub fn is_empty(&self) -> bool {
        self.0.store.is_empty()
    }

    fn answer(&self, delay: Duration) {
        let mut state = self.0.state.lock();
        state.behaviour = Behaviour::Answering { delay };
        // The mutex of the state is held, so that no later operation overtakes these operations.
        for QueuedOp { op, reply } in std::mem::take(&mut state.unread) {
            // The operation is executed even if no caller waits for its reply.
            let _ = reply.send(Delayed { reply: self.0.execute(op), delay });
        }
        self.0.status.send(NodeStatus::Up);
    }
}

impl SharedNode {
    /// Executes an operation. The memory store executes it inside `call`, so that its reply is ready at
    /// once.
    fn execute(&self, op: Op) -> Reply {
        let reply = self.store.call(op);
        reply.as_ready().cloned().unwrap_or_else(|| Vote::Failed(connection_broke()).into())
    }

    /// Sends an operation and waits for its reply. The first poll executes or queues the operation, so that
    /// operations keep the order of their first polls.
    async fn send(&self, op: Op) -> Reply {
        let (reply, replied) = oneshot::channel();
        let connection = {
            let mut state = self.state.lock();
            match state.behaviour {
                Behaviour::Failing => return Vote::Failed(not_connected()).into(),
                Behaviour::Frozen => state.unread.push(QueuedOp { op, reply }),
                Behaviour::Answering { delay } => {
                    let _ = reply.send(Delayed { reply: self.execute(op), delay });
                }
            }
            state.connection.clone()
        };
        let arrived = connection.run_until_cancelled(async {
            let Delayed { reply, delay } = replied.await.ok()?;
            if !delay.is_zero() {
                self.clock.sleep(delay).await;
            }
            Some(reply)
        });
        arrived.await.flatten().unwrap_or_else(|| Vote::Failed(connection_broke()).into())
    }
}

impl Node for TestNode {
    fn name(&self) -> &Arc<str> {
        self.0.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.store.capabilities()
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let shared = Arc::clone(&self.0);
        ReplyFuture::new(async move { shared.send(op).await })
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        self.0.store.subscribe(spec, notify)
    }

    /// A frozen node does not execute the operation, even when it recovers.
    fn queue(&self, op: QueueOp) -> QueueFuture {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let (behaviour, connection) = {
                let state = shared.state.lock();
                (state.behaviour, state.connection.clone())
            };
            let delay = match behaviour {
                Behaviour::Failing => return Err(not_connected()),
                Behaviour::Frozen => {
                    connection.cancelled().await;
                    return Err(connection_broke());
                }
                Behaviour::Answering { delay } => delay,
            };
            let reply = shared.store.queue(op);
            if !delay.is_zero() {
                shared.clock.sleep(delay).await;
            }
            reply.await
        })
    }

    fn subscribe_queue(&self, spec: &LockSpec, process: ProcessId, notify: Notify) -> Subscription {
        self.0.store.subscribe_queue(spec, process, notify)
    }

    fn request_turn(&self, spec: &LockSpec) -> Subscription {
        self.0.store.request_turn(spec)
    }

    fn status(&self) -> StatusReceiver {
        self.0.status.subscribe()
    }
}

impl fmt::Debug for TestNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestNode")
            .field("name", self.name())
            .field("behaviour", &self.0.state.lock().behaviour)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

fn not_connected() -> NodeError {
    NodeError::NotConnected("the test has cut the node off".into())
}

fn connection_broke() -> NodeError {
    NodeError::ConnectionBroke("the test has cut the node off".into())
}
