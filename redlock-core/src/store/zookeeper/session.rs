//! The session with the ensemble, and the task that keeps it connected.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connect::{Established, SessionConnector};
use super::evidence::Evidence;
use super::link::{PendingReply, SessionDriver, SessionLink};
use super::requests::{Acl, ZookeeperRequest};
use super::url::ZookeeperUrl;
use crate::clock::Moment;
use crate::error::NodeError;
use crate::log_limit::LogLimit;
use crate::log_limited;
use crate::node::{NodeSettings, NodeStatus, Silence, StatusSender};
use crate::store::kit::outage_log::OutageLog;
use crate::store::kit::pauses::{Pauses, WaitingCallers};

/// The session with the ensemble, over one connection at a time.
pub(super) struct ZookeeperSession {
    name: Arc<str>,
    acl: Acl,
    settings: NodeSettings,
    current: ArcSwap<Result<Arc<SessionLink>, NodeError>>,
    evidence: Mutex<Evidence>,
    status: StatusSender,
    /// The callers that wait for a connection.
    callers: WaitingCallers,
    /// Cancelled when the node is dropped: the session is closed, and the tasks of the node end.
    pub(super) closing: CancellationToken,
}

impl ZookeeperSession {
    /// Starts the task of a session in a runtime.
    pub(super) fn start(
        name: Arc<str>,
        url: ZookeeperUrl,
        settings: NodeSettings,
        status: StatusSender,
        runtime: &Handle,
    ) -> Arc<Self> {
        let reason = NodeError::NotConnected("not connected yet".into());
        let session = Arc::new(Self {
            name,
            acl: url.acl(),
            current: ArcSwap::from_pointee(Err(reason)),
            evidence: Mutex::new(Evidence::new(url.session_timeout, settings.clock.now())),
            status,
            callers: WaitingCallers::default(),
            settings,
            closing: CancellationToken::new(),
        });
        runtime.spawn(Arc::clone(&session).keep(url));
        session
    }

    /// Sends a request, in the order of the calls, without blocking. Dropping the future does not withdraw the request.
    ///
    /// # Errors
    ///
    /// [`NodeError::NotConnected`]: nothing was sent, and nothing will be.
    pub(super) fn send<T: 'static>(
        &self,
        request: ZookeeperRequest<T>,
    ) -> Result<PendingReply<T>, NodeError> {
        self.link()?.send(request)
    }

    /// Returns the connection, for requests that must be sent over the same one.
    ///
    /// # Errors
    ///
    /// [`NodeError::NotConnected`] while there is no connection.
    pub(super) fn link(&self) -> Result<Arc<SessionLink>, NodeError> {
        Result::clone(&self.current.load()).and_then(|link| match link.ended() {
            None => Ok(link),
            Some(reason) => Err(NodeError::NotConnected(reason)),
        })
    }

    /// Returns the number of the session. After a session has expired, and its ephemeral nodes with it, a new session
    /// has another number.
    ///
    /// # Errors
    ///
    /// [`NodeError::NotConnected`] while there is no connection.
    pub(super) fn number(&self) -> Result<u64, NodeError> {
        self.link().map(|link| link.number)
    }

    /// Waits until the session is connected, and returns its number.
    pub(super) async fn connected(&self) -> u64 {
        let status = self.status.subscribe();
        loop {
            status.wait_for(|_| self.number().is_ok()).await;
            if let Ok(number) = self.number() {
                return number;
            }
        }
    }

    /// Returns the name of the node.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the present time of the clock that measures leases.
    pub(super) fn now(&self) -> Moment {
        self.settings.clock.now()
    }

    /// Returns an error unless the session certainly lives until the end of a lease that a request sent at the moment `sent` has
    /// set.
    pub(super) fn vouch(&self, sent: Moment, lease: Duration) -> Result<(), NodeError> {
        self.evidence.lock().vouch(sent, lease)
    }

    /// Returns the rights to new nodes.
    pub(super) fn acl(&self) -> Acl {
        self.acl
    }

    /// Waits for the end of the next attempt to connect, which is made soon. Returns whether there is a connection.
    pub(super) async fn reconnect(&self) -> bool {
        let (current, status) = (self.current.load_full(), self.status.subscribe());
        let is_connected = || self.link().is_ok();
        self.callers.wait(Result::as_ref(&*current).err(), status, is_connected).await
    }

    /// Returns whether the server owes a reply, and for how long. Without a connection, it is silent.
    pub(super) fn silence(&self, limit: Duration) -> Silence {
        match self.link() {
            Ok(link) => link.silence(limit),
            Err(_) => Silence::Silent(limit),
        }
    }

    /// Keeps the session connected until it is to be closed.
    async fn keep(self: Arc<Self>, url: ZookeeperUrl) {
        let closing = &self.closing;
        let log_limit = LogLimit::new(Arc::clone(&self.settings.clock));
        let (mut outages, mut pauses) = (OutageLog::default(), Pauses::new());
        let mut connector = SessionConnector::new(url, self.settings.clone());
        let mut number = None;
        while let Some(connected) = closing.run_until_cancelled(connector.connect()).await {
            let error = match connected {
                Ok(Established { stream, session, before }) => {
                    if number.replace(session.number).is_some_and(|one| one != session.number) {
                        // The servers have refused the former session before this moment.
                        let words = match self.vouch(before, Duration::ZERO) {
                            Ok(()) => {
                                "the servers do not know the session, which cannot have expired: the URL leads to another ensemble, \
                                 whose locks others may hold too, or the data of the servers are lost"
                            }
                            Err(_) => "the session has expired, and with it its locks",
                        };
                        log_limited!(
                            log_limit, "session", &self.name, warn, node = %self.name, "{words}"
                        );
                    }
                    self.evidence.lock().connected(session.began, before);
                    let since = Instant::now();
                    let (link, requests) = SessionLink::new(session.number);
                    outages.up(&self.name);
                    self.set(Ok(Arc::new(link)));
                    let (settings, evidence) = (&self.settings, &self.evidence);
                    let driver = SessionDriver::new(&connector.url, settings, evidence, closing);
                    let reason = driver.run(requests, stream, &mut connector.last_zxid).await;
                    connector.last_connected = self.settings.clock.now();
                    pauses.record_connection(since.elapsed());
                    NodeError::NotConnected(reason)
                }
                Err(error) => error,
            };
            if let Some(before) = connector.shortened.take() {
                self.evidence.lock().end(before);
            }
            self.set(Err(error.clone()));
            if closing.is_cancelled() {
                return;
            }
            outages.down(&self.name, &error);
            let pause = pauses.pause(&error, &self.callers);
            closing.run_until_cancelled(pause).await;
        }
    }

    /// Sets the connection, or the reason why there is none.
    fn set(&self, current: Result<Arc<SessionLink>, NodeError>) {
        let status = match &current {
            Ok(_) => NodeStatus::Up,
            Err(reason) => NodeStatus::Down(reason.clone()),
        };
        self.current.store(Arc::new(current));
        self.status.send(status);
    }
}
