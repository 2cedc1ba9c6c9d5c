//! A node whose store executes each operation when the test calls `execute`.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};

use super::{
    Action, Capabilities, Fencing, Node, NodeStatus, Notify, Op, Remote, Reply, ReplyFuture,
    StatusReceiver, StatusSender, Subscription,
};
use crate::lock::LockSpec;
use crate::store::memory::MemoryNode;

/// A node whose store executes operations when the test calls [`Sent::execute`], in any order.
#[derive(Debug)]
pub(crate) struct DeferringNode {
    pub(crate) store: MemoryNode,
    pub(crate) capabilities: Capabilities,
    sent: mpsc::UnboundedSender<Sent>,
    pub(crate) status: StatusSender,
    pub(crate) is_granting: bool,
    pub(crate) product: Option<&'static str>,
}

/// An operation that is on its way to the store.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) op: Op,
    store: MemoryNode,
    reply: oneshot::Sender<Reply>,
}

impl DeferringNode {
    /// Returns a node that does not keep the order, and the operations that are sent to its store.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Sent>) {
        let (sent, operations) = mpsc::unbounded_channel();
        let (fencing, defaults) = (Fencing::Quorum, Capabilities::default());
        let capabilities = Capabilities { fencing, ordered: false, ..defaults };
        let (store, status) = (MemoryNode::new(), StatusSender::new(NodeStatus::Up));
        let node = Self { store, capabilities, sent, status, is_granting: true, product: None };
        (node, operations)
    }
}

impl Sent {
    pub(crate) fn is_release(&self) -> bool {
        matches!(self.op.action, Action::Release { .. })
    }

    /// Executes the operation, and replies.
    pub(crate) fn execute(self) {
        let reply = self.store.call(self.op).now_or_never().unwrap();
        // The store executes the operation even if the reply future was dropped.
        let _ = self.reply.send(reply);
    }

    /// Executes the operation. The reply comes when the returned function is called.
    pub(crate) fn execute_and_hold(self) -> impl FnOnce() {
        let reply = self.store.call(self.op).now_or_never().unwrap();
        move || drop(self.reply.send(reply))
    }
}

impl Node for DeferringNode {
    fn name(&self) -> &Arc<str> {
        self.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn store_id(&self) -> Option<Arc<str>> {
        self.store.store_id()
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let (store, sent) = (self.store.clone(), self.sent.clone());
        ReplyFuture::new(async move {
            let (reply, replied) = oneshot::channel();
            sent.send(Sent { op, store, reply }).unwrap();
            replied.await.unwrap()
        })
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        self.store.subscribe(spec, notify)
    }

    fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl Remote for DeferringNode {
    fn is_granting(&self) -> bool {
        self.is_granting
    }

    fn product(&self) -> Option<&'static str> {
        self.product
    }
}
