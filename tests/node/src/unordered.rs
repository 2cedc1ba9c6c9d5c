//! A node whose operations reach the store in any order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redlock_core::node::{
    Capabilities, Inspection, LockSpec, LossHints, Node, Notify, Op, ReplyFuture, StatusReceiver,
    Subscription,
};
use redlock_core::{NodeError, Vote};
use tokio::runtime::Handle;

use crate::ActorNode;

/// The longest delay of an operation on its way to the store.
const LONGEST_DELAY: Duration = Duration::from_millis(2);

/// A node whose operations reach the store in any order, as over a pool of connections: a task of its own
/// sends each operation.
#[derive(Debug, Clone)]
pub struct UnorderedNode {
    node: ActorNode,
    /// Runs the operations of callers that are in no runtime.
    runtime: Handle,
    calls: Arc<AtomicU32>,
}

impl UnorderedNode {
    /// Creates a node that reaches the store of `node` by tasks of the current Tokio runtime.
    pub fn new(node: &ActorNode) -> Self {
        Self { node: node.clone(), runtime: Handle::current(), calls: Arc::default() }
    }

    /// Returns the node whose store this node uses.
    pub fn store(&self) -> &ActorNode {
        &self.node
    }
}

impl Node for UnorderedNode {
    fn name(&self) -> &Arc<str> {
        self.node.name()
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.node.capabilities();
        capabilities.ordered = false;
        capabilities
    }

    fn store_id(&self) -> Option<Arc<str>> {
        self.node.store_id()
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let (reply, runtime) = (self.node.call(op), self.runtime.clone());
        // The same sequence in each run: the multiples of the golden ratio spread evenly.
        let fraction = self.calls.fetch_add(1, Ordering::Relaxed).wrapping_mul(2_654_435_769);
        let delay = LONGEST_DELAY.mul_f64(f64::from(fraction) / f64::from(u32::MAX));
        ReplyFuture::new(async move {
            let call = runtime.spawn(async move {
                tokio::time::sleep(delay).await;
                reply.await
            });
            // The task may have sent the operation before its runtime ended.
            let broke = || Vote::Failed(NodeError::ConnectionBroke("the runtime has ended".into()));
            call.await.unwrap_or_else(|_| broke().into())
        })
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        self.node.subscribe(spec, notify)
    }

    fn status(&self) -> StatusReceiver {
        self.node.status()
    }

    fn inspection(&self) -> Option<&dyn Inspection> {
        self.node.inspection()
    }

    fn loss_hints(&self) -> Option<&dyn LossHints> {
        self.node.loss_hints()
    }
}
