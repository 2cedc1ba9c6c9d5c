//! A place for one connection, which is made anew when it has broken.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connect::connect;
use super::link::{Driver, Event, Link};
use super::shared::Shared;
use crate::error::NodeError;
use crate::node::watch::pauses;
use crate::node::{NodeStatus, StatusReceiver, StatusSender};

/// After a connection that lasted for less than this, the slot pauses.
const SHORT_LIVED: Duration = Duration::from_secs(1);

/// A place for one connection.
pub(super) struct Slot {
    current: ArcSwap<Result<Arc<Link>, NodeError>>,
    status: StatusSender,
    /// Notified when a request finds no connection.
    wanted: Notify,
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
    pub(super) fn link(&self) -> Result<Arc<Link>, NodeError> {
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

    fn set(&self, current: Result<Arc<Link>, NodeError>) {
        let status = match &current {
            Ok(_) => NodeStatus::Up,
            Err(reason) => NodeStatus::Down(reason.clone()),
        };
        self.current.store(Arc::new(current));
        self.status.send(status);
    }

    /// Keeps a connection for the node. Calls `on_connected` when it begins, `on_event` for its events, and
    /// `on_change` when the status has changed.
    pub(super) async fn keep(
        &self,
        node: &Shared,
        on_connected: impl Fn(Arc<Link>) -> BoxFuture<'static, ()>,
        on_event: impl Fn(Event),
        on_change: impl Fn(),
    ) {
        let (mut next_pause, mut former) = (pauses::FIRST, None);
        loop {
            let error = match connect(&node.url, &node.settings, former).await {
                Ok(connected) => {
                    node.admit(&connected.findings);
                    former = Some(connected.findings.backend);
                    let since = Instant::now();
                    let clock = Arc::clone(&node.settings.clock);
                    let (link, driver) = Driver::new(connected, node.settings.node_timeout, clock);
                    let link = Arc::new(link);
                    self.set(Ok(Arc::clone(&link)));
                    on_change();
                    let reason = tokio::select! {
                        reason = driver.run(&on_event) => reason,
                        never = async {
                            on_connected(link).await;
                            std::future::pending().await
                        } => never,
                    };
                    if since.elapsed() >= SHORT_LIVED {
                        next_pause = Duration::ZERO;
                    }
                    NodeError::NotConnected(reason)
                }
                Err(error) => error,
            };
            self.set(Err(error.clone()));
            on_change();
            pauses::pause(&error, &mut next_pause, &self.wanted).await;
        }
    }
}
