//! The session with the ensemble, and the task that keeps it connected.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::connect::{Established, SessionConnector};
use super::evidence::Evidence;
use super::frames::ServerStream;
use super::link::{LinkRequests, PendingReply, SessionDriver, SessionLink};
use super::requests::{Acl, ZookeeperRequest};
use super::url::ZookeeperUrl;
use crate::clock::Moment;
use crate::error::NodeError;
use crate::log_limit::LogLimit;
use crate::log_limited;
use crate::node::{NodeSettings, NodeStatus, Silence, StatusSender};
use crate::store::kit::kept::{Keeper, Kept, KeptLink};
use crate::store::kit::outage_log::OutageLog;

/// The session with the ensemble, over one connection at a time.
pub(super) struct ZookeeperSession {
    name: Arc<str>,
    acl: Acl,
    settings: NodeSettings,
    /// Stopped when the node is dropped: the session is closed, and the tasks of the node end.
    pub(super) kept: Kept<SessionLink>,
    evidence: Mutex<Evidence>,
    /// The status of the node.
    status: StatusSender,
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
        let session = Arc::new(Self {
            name,
            acl: url.acl(),
            kept: Kept::new(),
            evidence: Mutex::new(Evidence::new(url.session_timeout, settings.clock.now())),
            status,
            settings,
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
        self.kept.link()
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
        let status = self.kept.status();
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
        self.kept.reconnect().await
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
        let mut keeper = SessionKeeper {
            session: &self,
            connector: SessionConnector::new(url, self.settings.clone()),
            number: None,
            outages: OutageLog::default(),
            log_limit: LogLimit::new(Arc::clone(&self.settings.clock)),
        };
        self.kept.keep(&mut keeper).await;
    }
}

/// Makes the connections of a session.
struct SessionKeeper<'a> {
    session: &'a ZookeeperSession,
    connector: SessionConnector,
    /// The number of the latest session.
    number: Option<u64>,
    outages: OutageLog,
    log_limit: LogLimit,
}

impl SessionKeeper<'_> {
    /// Takes note of a session that a server has shortened.
    fn record_shortened(&mut self) {
        if let Some(before) = self.connector.shortened.take() {
            self.session.evidence.lock().end(before);
        }
    }
}

impl Keeper for SessionKeeper<'_> {
    type Link = SessionLink;
    type Driver = (LinkRequests, ServerStream);

    async fn connect(&mut self) -> Result<(Arc<SessionLink>, Self::Driver), NodeError> {
        let established = self.connector.connect().await;
        let Established { stream, session: key, before, server } =
            established.inspect_err(|_| self.record_shortened())?;
        let Self { session, number, log_limit, .. } = self;
        if number.replace(key.number).is_some_and(|one| one != key.number) {
            // The servers have refused the former session before this moment.
            let words = match session.vouch(before, Duration::ZERO) {
                Ok(()) => {
                    "the servers do not know the session, which cannot have expired: the URL leads to another ensemble, \
                     whose locks others may hold too, or the data of the servers are lost"
                }
                Err(_) => "the session has expired, and with it its locks",
            };
            log_limited!(
                log_limit, "session", &session.name, warn, node = %session.name, "{words}"
            );
        }
        session.evidence.lock().connected(key.began, before);
        let (link, requests) = SessionLink::new(key.number, server);
        Ok((Arc::new(link), (requests, stream)))
    }

    async fn serve(
        &mut self,
        _: Arc<SessionLink>,
        (requests, stream): (LinkRequests, ServerStream),
    ) -> Arc<str> {
        let ZookeeperSession { settings, evidence, .. } = self.session;
        let (connector, closing) = (&mut self.connector, &self.session.kept.stopped);
        let driver = SessionDriver::new(&connector.url, settings, evidence, closing);
        let reason = driver.run(requests, stream, &mut connector.last_zxid).await;
        connector.last_connected = settings.clock.now();
        self.record_shortened();
        reason
    }

    fn changed(&mut self, status: NodeStatus, _: bool) {
        self.outages.record(&self.session.name, &status);
        self.session.status.send(status);
    }
}
