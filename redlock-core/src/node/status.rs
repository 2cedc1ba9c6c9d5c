//! The status of a node.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::NodeError;

/// Whether a node accepts operations.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeStatus {
    /// The node has not been reached yet, and no attempt has failed.
    Connecting,
    /// The node accepts operations.
    Up,
    /// The node accepts no operations, for this reason. A node that can recover keeps trying, and changes
    /// to [`Up`](Self::Up) when it succeeds. Pending releases are repeated then, and every 5 s before.
    Down(NodeError),
}

impl NodeStatus {
    /// Returns whether the node accepts operations.
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up)
    }
}

/// Sets the status of a node, which hands out [receivers](Self::subscribe). Cloning is cheap, and the clones set the same
/// status.
#[derive(Debug, Clone)]
pub struct StatusSender(Arc<SharedStatus>);

/// Shows the status of a node. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct StatusReceiver(Arc<SharedStatus>);

#[derive(Debug)]
struct SharedStatus {
    status: Mutex<NodeStatus>,
    /// Wakes waiters in the order of their arrival.
    changed: Notify,
}

impl StatusSender {
    /// Creates a sender with this initial status.
    pub fn new(status: NodeStatus) -> Self {
        Self(Arc::new(SharedStatus { status: Mutex::new(status), changed: Notify::new() }))
    }

    /// Changes the status, and wakes all tasks that wait for a change.
    pub fn send(&self, status: NodeStatus) {
        *self.0.status.lock() = status;
        self.0.changed.notify_waiters();
    }

    /// Creates a receiver of the status.
    pub fn subscribe(&self) -> StatusReceiver {
        StatusReceiver(Arc::clone(&self.0))
    }
}

impl StatusReceiver {
    /// Returns the current status.
    pub fn get(&self) -> NodeStatus {
        self.0.status.lock().clone()
    }

    /// Waits until `wanted` accepts the status, and returns the status. Returns at once if `wanted` accepts
    /// the current status. Waits for ever if the node was dropped before.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&NodeStatus) -> bool) -> NodeStatus {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let status = self.get();
            if wanted(&status) {
                return status;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn wait_for_resolves_when_the_status_matches() {
        let sender = StatusSender::new(NodeStatus::Connecting);
        let receiver = sender.subscribe();
        let mut up = Box::pin(receiver.wait_for(NodeStatus::is_up));
        assert!(up.as_mut().now_or_never().is_none());
        sender.send(NodeStatus::Down(NodeError::NotConnected("refused".into())));
        assert!(up.as_mut().now_or_never().is_none());
        sender.send(NodeStatus::Up);
        assert_eq!(up.now_or_never(), Some(NodeStatus::Up));
        assert_eq!(receiver.wait_for(NodeStatus::is_up).now_or_never(), Some(NodeStatus::Up));
        sender.send(NodeStatus::Connecting);
        assert!(receiver.wait_for(NodeStatus::is_up).now_or_never().is_none());
    }
}
