//! A node written against the public trait alone, as outside of this workspace.
//!
//! Its store is a task that owns the locks. Operations reach the task over a channel, as they reach a server
//! over a connection. [`ActorNode`] keeps the order of operations. [`UnorderedNode`] sends them to the same
//! store in any order, as a pool of connections does. [`GuardedNode`] notices that its store was restarted.

mod guarded;
mod store;
mod test_store;
mod unordered;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlock_core::node::{
    Capabilities, Fencing, Inspection, LockSpec, LookFuture, LossHints, Node, NodeStatus, Notify,
    Op, RemovalFuture, ReplyFuture, StatusReceiver, StatusSender, Subscription, Token,
};
use redlock_core::{HolderId, NodeError, Vote};
use tokio::sync::{mpsc, oneshot};

pub use guarded::GuardedNode;
use store::{Message, Store};
pub use unordered::UnorderedNode;

/// A node whose store is a task. Clones reach the same store.
#[derive(Debug, Clone)]
pub struct ActorNode(Arc<Connection>);

/// The connection to the store.
#[derive(Debug)]
struct Connection {
    name: Arc<str>,
    /// Identifies the store, whatever the names of its nodes.
    store_id: Arc<str>,
    messages: mpsc::UnboundedSender<Message>,
    status: StatusSender,
    next_id: AtomicU64,
}

impl ActorNode {
    /// Starts an empty store in the current Tokio runtime. The node is up at once.
    pub fn start(name: &str) -> Self {
        let node = Self::start_unconnected(name);
        node.bring_up();
        node
    }

    /// Starts an empty store that cannot be reached before [`bring_up`](Self::bring_up).
    pub fn start_unconnected(name: &str) -> Self {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let (messages, inbox) = mpsc::unbounded_channel();
        tokio::spawn(Store::default().run(inbox));
        Self(Arc::new(Connection {
            name: name.into(),
            store_id: format!("actor:{}", STORES.fetch_add(1, Ordering::Relaxed)).into(),
            messages,
            status: StatusSender::new(NodeStatus::Connecting),
            next_id: AtomicU64::new(0),
        }))
    }

    /// Makes the store unreachable. Its locks stay until their leases end.
    pub fn take_down(&self, reason: &str) {
        self.0.status.send(NodeStatus::Down(NodeError::NotConnected(reason.into())));
    }

    /// Makes the store reachable, for the first time or again.
    pub fn bring_up(&self) {
        self.0.status.send(NodeStatus::Up);
    }

    /// Returns the remaining lease of a lock by its full name, or `None` if it is free.
    pub async fn time_to_live(&self, name: &str) -> Option<Duration> {
        let name = name.to_owned();
        self.look(move |store| store.time_to_live(&name)).await.flatten()
    }

    /// Returns the number of held locks.
    pub async fn len(&self) -> usize {
        self.look(|store| store.len()).await.unwrap_or_default()
    }

    /// Returns whether no lock is held.
    pub async fn is_empty(&self) -> bool {
        self.len().await == 0
    }

    /// Returns the number of subscriptions to the releases of a lock.
    pub async fn subscribers_of(&self, name: &str) -> usize {
        let name = name.to_owned();
        self.look(move |store| store.subscribers_of(&name)).await.unwrap_or_default()
    }

    /// Returns the number of holders that want to hear of the loss of a lock.
    pub async fn watches_of(&self, name: &str) -> usize {
        let name = name.to_owned();
        self.look(move |store| store.watches_of(&name)).await.unwrap_or_default()
    }

    /// Removes a lock, as an operator does. Returns whether the store runs.
    pub async fn remove(&self, name: &str) -> bool {
        let name = name.to_owned();
        self.look(move |store| store.remove(&name)).await.is_some()
    }

    fn check_connected(&self) -> Result<(), NodeError> {
        match self.status().get() {
            NodeStatus::Up => Ok(()),
            NodeStatus::Down(reason) => Err(reason),
            _ => Err(NodeError::NotConnected("not connected yet".into())),
        }
    }

    /// Asks the store a question of an operator.
    async fn inspect<T: Send + 'static>(
        self,
        look: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> Result<T, NodeError> {
        self.check_connected()?;
        let ended = || NodeError::ConnectionBroke("the store has ended".into());
        self.look(look).await.ok_or_else(ended)
    }

    /// Reads from the store or changes it, even while the node is down.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, seen) = oneshot::channel();
        let look = Box::new(move |store: &mut Store| drop(sender.send(look(store))));
        self.0.messages.send(Message::Look(look)).ok()?;
        seen.await.ok()
    }
}

impl Node for ActorNode {
    fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.fencing = Fencing::Quorum;
        capabilities
    }

    /// A node that is not connected has not learned the ID of its store.
    fn store_id(&self) -> Option<Arc<str>> {
        self.status().get().is_up().then(|| Arc::clone(&self.0.store_id))
    }

    fn call(&self, op: Op) -> ReplyFuture {
        if let Err(reason) = self.check_connected() {
            return ReplyFuture::ready(Vote::Failed(reason));
        }
        let node = self.clone();
        ReplyFuture::new(async move {
            let (sender, reply) = oneshot::channel();
            // The channel keeps the order from here on.
            if node.0.messages.send(Message::Call(op, sender)).is_err() {
                node.take_down("the store has ended");
                return Vote::Failed(NodeError::NotConnected("the store has ended".into())).into();
            }
            // The store may have executed the operation before it ended.
            let broke = |_| Vote::Failed(NodeError::ConnectionBroke("the store has ended".into()));
            reply.await.unwrap_or_else(|error| broke(error).into())
        })
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let (name, messages) = (spec.name().to_owned(), self.0.messages.clone());
        let (sender, subscribed) = oneshot::channel();
        // A store that has ended sends no notification: the waiters poll.
        let _ = messages.send(Message::Subscribe { name: name.clone(), id, notify, done: sender });
        let unsubscribe = move || drop(messages.send(Message::Unsubscribe { name, id }));
        Subscription::new(unsubscribe).ready_after(async move {
            let _ = subscribed.await;
        })
    }

    fn status(&self) -> StatusReceiver {
        self.0.status.subscribe()
    }

    fn inspection(&self) -> Option<&dyn Inspection> {
        Some(self)
    }

    fn loss_hints(&self) -> Option<&dyn LossHints> {
        Some(self)
    }
}

impl LossHints for ActorNode {
    fn watch(&self, spec: &LockSpec, token: Token, notify: Notify) -> Subscription {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let (name, messages) = (spec.name().to_owned(), self.0.messages.clone());
        // A store that has ended gives no hints: the holder learns of its loss at its next renewal.
        let _ = messages.send(Message::Watch { name: name.clone(), id, token, notify });
        Subscription::new(move || drop(messages.send(Message::EndWatch { name, id })))
    }
}

impl Inspection for ActorNode {
    fn look(&self, spec: &LockSpec) -> LookFuture {
        let name = spec.name().to_owned();
        Box::pin(self.clone().inspect(move |store| store.found(&name)))
    }

    fn remove(&self, spec: &LockSpec, holder: HolderId) -> RemovalFuture {
        let name = spec.name().to_owned();
        Box::pin(self.clone().inspect(move |store| store.remove_holder(&name, holder)))
    }
}
