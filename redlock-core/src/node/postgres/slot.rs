//! A place for one connection, which is made anew when it has broken.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::link::ServerLink;
use crate::error::NodeError;
use crate::node::watch::pauses;
use crate::node::{NodeStatus, StatusReceiver, StatusSender};

/// A place for one connection.
pub(super) struct Slot {
    current: ArcSwap<Result<Arc<ServerLink>, NodeError>>,
    status: StatusSender,
    /// Notified when a request finds no connection.
    pub(super) wanted: Notify,
}

impl Slot {
    pub(super) fn new() -> Self {
        let reason = NodeError::NotConnected("not connected yet".into());
        Self {
            current: ArcSwap::from_pointee(Err(reason)),
            status: StatusSender::new(NodeStatus::Connecting),
            wanted: Notify::new(),
        }
    }

    /// Returns the connection, or the reason why there is none. Then the next attempt to connect is made soon.
    pub(super) fn link(&self) -> Result<Arc<ServerLink>, NodeError> {
        let link = Result::clone(&self.current.load()).and_then(|link| match link.ended() {
            None => Ok(link),
            Some(reason) => Err(NodeError::NotConnected(reason)),
        });
        link.inspect_err(|_| self.wanted.notify_one())
    }

    pub(super) fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    /// Makes an attempt to connect soon, and waits for its end. Returns whether there is a connection.
    pub(super) async fn reconnect(&self) -> bool {
        if let Err(reason) = &**self.current.load()
            && !pauses::ends_on_request(reason)
        {
            return false;
        }
        // The status changes at the end of a connection, or of an attempt that had begun before this call, and at the end of
        // the wanted attempt.
        let mut checks = 0;
        let is_tried = |_: &NodeStatus| {
            checks += 1;
            checks > 2 || self.link().is_ok()
        };
        self.status().wait_for(is_tried).await;
        self.link().is_ok()
    }

    /// Sets the connection, or the reason why there is none.
    pub(super) fn set(&self, current: Result<Arc<ServerLink>, NodeError>) {
        let status = match &current {
            Ok(_) => NodeStatus::Up,
            Err(reason) => NodeStatus::Down(reason.clone()),
        };
        self.current.store(Arc::new(current));
        self.status.send(status);
    }
}
