//! One connection to a server, which is made anew when it has broken.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pauses::{Pauses, WaitingCallers};
use crate::error::NodeError;
use crate::node::{NodeStatus, Silence, StatusReceiver, StatusSender};

/// A connection to a server.
pub(crate) trait KeptLink {
    /// Returns the reason of the end, if the connection has ended.
    fn ended(&self) -> Option<Arc<str>>;

    /// Returns whether the server owes a reply, and for how long.
    fn silence(&self, limit: Duration) -> Silence;
}

/// Returns the silence of a node for a caller that waits for one of several connections. It is not known for which, so each of
/// them counts once the caller has waited for the `rest` of its limit. Without a connection, the node is silent.
pub(crate) fn silence_of(
    links: impl Iterator<Item = Silence>,
    rest: Duration,
    waited: Duration,
) -> Silence {
    let mut again: Option<Duration> = None;
    for silence in links {
        let next = match silence {
            Silence::Silent(_) if rest.is_zero() => return silence,
            Silence::Silent(_) => rest,
            Silence::CheckAgainAfter(time) => time,
        };
        again = Some(again.map_or(next, |again| again.min(next)));
    }
    again.map_or(Silence::Silent(waited), Silence::CheckAgainAfter)
}

/// The part of a store that makes the connections of a [`Kept`].
pub(crate) trait Keeper: Send {
    type Link: KeptLink;
    /// The end of a connection that serves its callers.
    type Driver: Send;

    /// Makes a connection. Callers use it as soon as this method has returned it.
    fn connect(
        &mut self,
    ) -> impl Future<Output = Result<(Arc<Self::Link>, Self::Driver), NodeError>> + Send;

    /// Serves the callers of a connection until it ends, and returns the reason.
    fn serve(
        &mut self,
        link: Arc<Self::Link>,
        driver: Self::Driver,
    ) -> impl Future<Output = Arc<str>> + Send;

    /// Logs and publishes a new status. `is_lost` is set if the server was connected until now.
    fn changed(&mut self, status: NodeStatus, is_lost: bool);

    /// Adds the address of the server to an error, if users need it.
    fn explain(&self, error: NodeError) -> NodeError {
        error
    }

    /// Returns whether an error is a refused login. The server would only log more refusals.
    fn is_refused_login(&self, _: &NodeError) -> bool {
        false
    }
}

/// A place for one connection.
///
/// There is never more than one usable connection, so that operations arrive in the order in which they were sent (an abandoned
/// attempt leaves nothing behind). Without a connection, every operation fails at once, so that no caller waits for the server.
pub(crate) struct Kept<L> {
    /// The connection, or the reason why there is none. A caller needs no mutex to find it.
    current: ArcSwap<Result<Arc<L>, NodeError>>,
    status: StatusSender,
    /// The callers that wait for a connection.
    callers: WaitingCallers,
    /// Cancel it when no further connection is to be made. The keeper ends the present one.
    pub(crate) stopped: CancellationToken,
}

impl<L: KeptLink> Kept<L> {
    pub(crate) fn new() -> Self {
        let reason = NodeError::NotConnected("not connected yet".into());
        Self {
            current: ArcSwap::from_pointee(Err(reason)),
            status: StatusSender::new(NodeStatus::Connecting),
            callers: WaitingCallers::default(),
            stopped: CancellationToken::new(),
        }
    }

    /// Returns the connection.
    ///
    /// # Errors
    ///
    /// The reason why there is none. [`NodeError::NotConnected`] if it has ended, and its keeper has not noticed it yet.
    pub(crate) fn link(&self) -> Result<Arc<L>, NodeError> {
        self.link_or(|error| error)
    }

    /// Returns the [connection](Self::link). `explain` completes the error if it has ended.
    pub(crate) fn link_or(
        &self,
        explain: impl FnOnce(NodeError) -> NodeError,
    ) -> Result<Arc<L>, NodeError> {
        let link = Result::clone(&self.current.load())?;
        match link.ended() {
            None => Ok(link),
            Some(reason) => Err(explain(NodeError::NotConnected(reason))),
        }
    }

    pub(crate) fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    /// Waits for the end of the next attempt to connect, which is made soon, or until it is [stopped](Self::stopped). Returns whether
    /// there is a connection.
    pub(crate) async fn reconnect(&self) -> bool {
        let current = self.current.load_full();
        let is_connected = || self.link().is_ok();
        let wait = self.callers.wait(Result::as_ref(&*current).err(), self.status(), is_connected);
        self.stopped.run_until_cancelled(wait).await.unwrap_or_default()
    }

    /// Sets the connection, or the reason why there is none. `changed` is [that](Keeper::changed) of the keeper.
    pub(crate) fn set(
        &self,
        current: Result<Arc<L>, NodeError>,
        changed: impl FnOnce(NodeStatus, bool),
    ) {
        let status = match &current {
            Ok(_) => NodeStatus::Up,
            Err(reason) => NodeStatus::Down(reason.clone()),
        };
        let is_lost = self.status().get().is_up() && !status.is_up();
        self.current.store(Arc::new(current));
        self.status.send(status.clone());
        changed(status, is_lost);
    }

    /// Keeps the server connected until it is [stopped](Self::stopped).
    pub(crate) async fn keep(&self, keeper: &mut impl Keeper<Link = L>) {
        let mut pauses = Pauses::new();
        while let Some(connected) = self.stopped.run_until_cancelled(keeper.connect()).await {
            let error = match connected {
                Ok((link, driver)) => {
                    let since = Instant::now();
                    self.set(Ok(Arc::clone(&link)), |status, lost| keeper.changed(status, lost));
                    let reason = keeper.serve(link, driver).await;
                    pauses.record_connection(since.elapsed());
                    NodeError::NotConnected(reason)
                }
                Err(error) => error,
            };
            if self.stopped.is_cancelled() {
                return;
            }
            let error = keeper.explain(error);
            self.set(Err(error.clone()), |status, lost| keeper.changed(status, lost));
            if keeper.is_refused_login(&error) {
                pauses.record_refusal();
            }
            let pause = pauses.pause(&error, &self.callers);
            self.stopped.run_until_cancelled(pause).await;
        }
    }
}
