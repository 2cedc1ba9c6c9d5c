//! One server with its connection.
//!
//! A [`Server`] has one address for ever. It keeps a connection, and makes a new one when the last has broken. What
//! belongs to the server and not to the connection stays here: the [`gate`], its history, and its clock.

mod admission;
mod clock_watch;
pub(crate) mod connection;
pub(crate) mod gate;
mod history;
mod identity;
mod outage_log;
pub(crate) mod pauses;
#[cfg(test)]
pub(crate) mod played_server;
pub(crate) mod promotions;
mod registry;
mod settings;
mod wall_clock;

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bb8_redis::bb8;
use futures_util::future::try_join;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error;
use super::link::Event;
use super::link::open::Endpoint;
use crate::error::NodeError;
use crate::jitter::jitter;
use crate::log_limit::LogLimit;
use crate::node::{Action, NodeStatus, QueueAction, Silence, StatusReceiver, StatusSender};

pub(crate) use admission::{Promotion, Role};
pub(crate) use registry::ServerRegistry;
pub(crate) use settings::ServerSettings;

use admission::Admission;
use clock_watch::ClockWatch;
use connection::Connection;
use gate::Gate;
use identity::Identity;
use outage_log::OutageLog;
use pauses::Pauses;

/// After a connection that lasted for less than this, the server pauses.
const SHORT_LIVED: Duration = Duration::from_secs(1);

/// A connection is replaced when its server has been silent for this time, or for twice the node timeout if
/// that is longer.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// Learns what happens on the servers of a node.
pub(crate) trait Observer: Send + Sync {
    /// A server is connected or not any more. `is_lost` is set if it was connected until now.
    fn status_changed(&self, is_lost: bool);

    /// A server has sent a message, or has replied to a subscription.
    fn received(&self, event: Event);
}

/// One server with its connection. Its connection ends, and is not made anew, when the last handle is dropped.
///
/// There is never more than one usable connection, so that commands arrive in the order in which they were
/// sent (an abandoned attempt leaves nothing behind). Without a connection, every operation fails at once,
/// so that no caller waits for the server.
pub(crate) struct Server {
    inner: Arc<Inner>,
    dropped: CancellationToken,
    _cancel_on_drop: DropGuard,
}

pub(crate) struct Inner {
    name: Arc<str>,
    endpoint: Endpoint,
    settings: Arc<ServerSettings>,
    /// The current connection, as a copy beside the pool, so that a command needs no mutex to find it.
    current: ArcSwap<ConnectionState>,
    status: StatusSender,
    pub(crate) gate: Arc<Gate>,
    admission: Admission,
    clock_watch: ClockWatch,
    outages: Arc<Mutex<OutageLog>>,
    /// Notified when a request finds no connection.
    wanted: Notify,
    observer: Weak<dyn Observer>,
}

/// The connection to a server, or the reason why there is none.
#[derive(Debug, Clone)]
pub(crate) enum ConnectionState {
    Up(Arc<Connection>),
    Down(NodeError),
}

impl Server {
    /// Creates the server of an endpoint. `former` is the master that it replaces.
    pub(crate) fn new(
        name: Arc<str>,
        endpoint: Endpoint,
        role: Role,
        settings: &Arc<ServerSettings>,
        log_limit: &Arc<LogLimit>,
        former: Option<&Self>,
        observer: Weak<dyn Observer>,
    ) -> Arc<Self> {
        let down = ConnectionState::Down(NodeError::NotConnected("not connected yet".into()));
        let gate = Arc::default();
        let outages = former.map_or_else(
            || Arc::new(Mutex::new(OutageLog::new(&name))),
            |former| Arc::clone(&former.outages),
        );
        let inner = Inner {
            admission: Admission::new(&name, role, settings, log_limit),
            clock_watch: ClockWatch::new(&name, settings, &gate, log_limit),
            name,
            endpoint,
            settings: Arc::clone(settings),
            current: ArcSwap::from_pointee(down),
            status: StatusSender::new(NodeStatus::Connecting),
            gate,
            outages,
            wanted: Notify::new(),
            observer,
        };
        let dropped = CancellationToken::new();
        let guard = dropped.clone().drop_guard();
        Arc::new(Self { inner: Arc::new(inner), dropped, _cancel_on_drop: guard })
    }

    /// Keeps the server connected in this runtime, until the last handle is dropped.
    pub(crate) fn start(&self, runtime: &Handle) {
        let keep_connected = Arc::clone(&self.inner).keep_connected();
        runtime.spawn(self.dropped.clone().run_until_cancelled_owned(keep_connected));
    }
}

impl Deref for Server {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    pub(crate) fn connection(&self) -> Result<Arc<Connection>, NodeError> {
        match &**self.current.load() {
            ConnectionState::Up(connection) if connection.is_alive() => Ok(Arc::clone(connection)),
            ConnectionState::Up(connection) => {
                Err(NodeError::NotConnected(connection.link.reason()))
            }
            ConnectionState::Down(reason) => Err(reason.clone()),
        }
    }

    /// Returns the connection, or an error if the server is silent.
    pub(crate) fn responsive_connection(&self) -> Result<Arc<Connection>, NodeError> {
        let connection = self.connection()?;
        match connection.silence(self.settings.node_timeout) {
            Silence::Silent(time) => Err(NodeError::NoReply(time)),
            Silence::CheckAgainAfter(_) => Ok(connection),
        }
    }

    /// Returns the connection for an operation. A silent server receives only releases: other commands
    /// would pile up, and would be useless by the time the server executes them.
    ///
    /// Without a connection, the server makes its next attempt to connect soon.
    pub(crate) fn connection_for(&self, action: &Action) -> Result<Arc<Connection>, NodeError> {
        match action {
            Action::Release { .. } => self.wanted_connection(Self::connection),
            Action::Acquire { .. } => {
                let connection = self.wanted_connection(Self::responsive_connection)?;
                self.gate.check_grants()?;
                Ok(connection)
            }
            _ => self.wanted_connection(Self::responsive_connection),
        }
    }

    /// Returns the connection for an operation on a fair queue.
    pub(crate) fn connection_for_queue(
        &self,
        action: &QueueAction,
    ) -> Result<Arc<Connection>, NodeError> {
        match action {
            QueueAction::Leave { .. } => self.wanted_connection(Self::connection),
            _ => self.wanted_connection(Self::responsive_connection),
        }
    }

    fn wanted_connection(
        &self,
        connection: impl FnOnce(&Self) -> Result<Arc<Connection>, NodeError>,
    ) -> Result<Arc<Connection>, NodeError> {
        connection(self).inspect_err(|_| self.wanted.notify_one())
    }

    /// Makes an attempt to connect soon, and waits for its end. Returns whether the server is connected.
    pub(crate) async fn reconnect(&self) -> bool {
        self.wanted.notify_one();
        self.status().attempted(|| self.connection().is_ok()).await
    }

    /// Sets what the sentinels report about the promotion of this master.
    pub(crate) fn set_promotion(&self, promotion: Promotion) {
        self.admission.set_promotion(promotion);
    }

    /// Ends the present connection.
    pub(crate) fn end(&self, reason: &str) {
        if let ConnectionState::Up(connection) = &**self.current.load() {
            connection.link.end(reason);
        }
    }

    pub(crate) fn set(&self, state: ConnectionState) {
        let status = match &state {
            ConnectionState::Up(_) => NodeStatus::Up,
            ConnectionState::Down(reason) => NodeStatus::Down(reason.clone()),
        };
        let is_lost = self.status.subscribe().get().is_up() && !status.is_up();
        self.current.store(Arc::new(state));
        self.status.send(status);
        if let Some(observer) = self.observer.upgrade() {
            observer.status_changed(is_lost);
        }
    }

    /// Keeps the server connected.
    async fn keep_connected(self: Arc<Self>) {
        let mut pauses = Pauses::new();
        loop {
            match self.connect().await {
                Ok((pool, opened)) => {
                    let since = Instant::now();
                    self.outages.lock().up();
                    let reason = self.serve(&opened).await;
                    // Pending replies must fail, instead of waiting on a connection that is being replaced.
                    opened.connection.link.end(&reason);
                    // Nothing may be written any more once there is another connection.
                    opened.connection.link.stopped().await;
                    self.admission.disconnected(&opened.identity);
                    drop(pool);
                    let down = NodeError::NotConnected(Arc::clone(&reason));
                    self.set(ConnectionState::Down(down));
                    self.outages.lock().down(&reason);
                    if since.elapsed() >= SHORT_LIVED {
                        pauses.reset();
                    } else {
                        self.pause(pauses.after_break(), true).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(node = %self.name, %error, "cannot connect to a node");
                    self.outages.lock().down(&error);
                    let (pause, ends) = (pauses.after(&error), Pauses::ends_on_request(&error));
                    self.set(ConnectionState::Down(error));
                    self.pause(pause, ends).await;
                }
            }
        }
    }

    /// Makes a connection, and uses it if it is admitted.
    async fn connect(self: &Arc<Self>) -> Result<(bb8::Pool<Connector>, Arc<Opened>), NodeError> {
        // bb8 owns the connection, so that a pool and its connection end together. It makes one, which is multiplexed, so
        // that commands keep their order (an abandoned attempt leaves nothing behind).
        let pool = bb8::Pool::builder()
            .max_size(1)
            .min_idle(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .retry_connection(false)
            .build(Connector(Arc::clone(self)))
            .await?;
        let opened =
            pool.get().await.map(|opened| Arc::clone(&opened)).map_err(|error| match error {
                bb8::RunError::User(error) => error,
                bb8::RunError::TimedOut => NodeError::NotConnected("no connection in time".into()),
            })?;
        self.admission.admit(&opened.identity, &self.gate)?;
        self.clock_watch.begin(opened.identity.time);
        self.set(ConnectionState::Up(Arc::clone(&opened.connection)));
        Ok((pool, opened))
    }

    /// Waits until the connection breaks, and returns the reason.
    async fn serve(&self, opened: &Opened) -> Arc<str> {
        let (connection, link) = (&opened.connection, &opened.connection.link);
        let watch_clock = async {
            if opened.identity.time.is_some() {
                self.clock_watch.watch(link).await;
            }
        };
        let limit = silence_limit(self.settings.node_timeout);
        tokio::select! {
            biased;
            reason = link.ended() => reason,
            _ = async {
                tokio::join!(
                    connection.end_when_silent_for(limit),
                    watch_clock,
                    link.keep_authenticated(&self.name, self.settings.connect_timeout),
                    self.admission.watch_role(link),
                )
            } => link.ended().await,
        }
    }

    /// Pauses before the next attempt to connect, for a time that is jittered by a quarter. A request may end the pause, so
    /// that a server that is back is used at once. There is at most one attempt in the time of the shortest pause.
    async fn pause(&self, pause: Duration, ends_on_request: bool) {
        let until = Instant::now() + pause.mul_f64(jitter(0.75..1.25));
        if ends_on_request {
            sleep_until(until.min(Instant::now() + pauses::FIRST)).await;
            // Both outcomes end the pause.
            let _ = timeout_at(until, self.wanted.notified()).await;
        } else {
            sleep_until(until).await;
        }
    }
}

/// Returns the silence of a server after which its connection is replaced. A round that waits for the node
/// has ended by then, so that the clean-up of its attempt was sent over the same connection (an abandoned
/// attempt leaves nothing behind).
fn silence_limit(node_timeout: Duration) -> Duration {
    SILENCE_LIMIT.max(node_timeout * 2)
}

/// Makes the connections of a server.
struct Connector(Arc<Inner>);

/// A connection after the handshake, with loaded scripts and a known identity.
struct Opened {
    connection: Arc<Connection>,
    identity: Identity,
}

impl bb8::ManageConnection for Connector {
    type Connection = Arc<Opened>;
    type Error = NodeError;

    async fn connect(&self) -> Result<Arc<Opened>, NodeError> {
        let Inner { endpoint, settings, admission, observer, .. } = &*self.0;
        let limit = settings.connect_timeout;
        let observer = Weak::clone(observer);
        let on_event = move |event| {
            if let Some(observer) = observer.upgrade() {
                observer.received(event);
            }
        };
        let connect = async {
            let link = endpoint.open(limit, settings.in_slices, on_event).await?;
            let identity = Identity::ask(&link, &*settings.clock, admission.lag_setting());
            let prepare = try_join(identity, connection::load_scripts(&link));
            let (identity, shas) =
                prepare.await.map_err(|error| endpoint.explain(error::not_connected(&error)))?;
            Ok(Arc::new(Opened { connection: Arc::new(Connection::new(link, shas)), identity }))
        };
        let late = |_| NodeError::NotConnected(format!("no connection within {limit:?}").into());
        timeout(limit, connect).await.map_err(late)?
    }

    /// The commands themselves, and the check for silence, detect a broken connection.
    async fn is_valid(&self, _: &mut Arc<Opened>) -> Result<(), NodeError> {
        Ok(())
    }

    /// The server itself makes the next connection, with pauses.
    fn has_broken(&self, _: &mut Arc<Opened>) -> bool {
        false
    }
}
