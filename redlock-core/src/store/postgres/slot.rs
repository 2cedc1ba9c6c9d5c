//! A place for one connection, which is made anew when it has broken.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::link::ServerLink;
use crate::error::NodeError;
use crate::node::{NodeStatus, StatusReceiver, StatusSender};
use crate::store::kit::pauses::WaitingCallers;

/// A place for one connection.
pub(super) struct Slot {
    current: ArcSwap<Result<Arc<ServerLink>, NodeError>>,
    status: StatusSender,
    /// The callers that wait for a connection.
    pub(super) callers: WaitingCallers,
}

impl Slot {
    pub(super) fn new() -> Self {
        let reason = NodeError::NotConnected("not connected yet".into());
        Self {
            current: ArcSwap::from_pointee(Err(reason)),
            status: StatusSender::new(NodeStatus::Connecting),
            callers: WaitingCallers::default(),
        }
    }

    /// Returns the connection, or the reason why there is none.
    pub(super) fn link(&self) -> Result<Arc<ServerLink>, NodeError> {
        Result::clone(&self.current.load()).and_then(|link| match link.ended() {
            None => Ok(link),
            Some(reason) => Err(NodeError::NotConnected(reason)),
        })
    }

    pub(super) fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    /// Waits for the end of the next attempt to connect, which is made soon. Returns whether there is a connection.
    pub(super) async fn reconnect(&self) -> bool {
        let current = self.current.load_full();
        let is_connected = || self.link().is_ok();
        self.callers.wait(Result::as_ref(&*current).err(), self.status(), is_connected).await
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
