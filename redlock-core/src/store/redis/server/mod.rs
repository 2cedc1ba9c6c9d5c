//! One server with its connection.
//!
//! A [`Server`] has one address for ever. It keeps a connection, and makes a new one when the last has broken. The state of the
//! server, which outlives its connections, stays here: the [gate](Gate), its history, and its clock.

mod admission;
mod clock_watch;
pub(crate) mod connection;
mod findings;
mod history;
mod identity;
mod name_watch;
#[cfg(test)]
#[cfg(feature = "unstable-simulation")]
mod name_watch_tests;
pub(crate) mod native;
#[cfg(test)]
#[cfg(feature = "unstable-simulation")]
mod native_tests;
#[cfg(test)]
#[cfg(feature = "unstable-simulation")]
pub(crate) mod played_redis;
#[cfg(test)]
pub(crate) mod played_server;
pub(crate) mod promotions;
pub(crate) mod rights;
#[cfg(test)]
#[cfg(feature = "unstable-simulation")]
mod server_tests;
mod settings;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bb8_redis::bb8;
use futures_util::future::{OptionFuture, try_join};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::encode;
use super::error;
use super::link::Event;
use super::link::open::Endpoint;
use super::script::Script;
use crate::error::NodeError;
use crate::node::{NodeStatus, Silence, StatusReceiver};
use crate::store::kit::connect_time::ConnectTime;
use crate::store::kit::gate::Gate;
use crate::store::kit::kept::{Keeper, Kept, KeptLink};
use crate::store::kit::outage_log::OutageLog;
use crate::store::kit::wall_clock::Reading;
use crate::{log_limited, telemetry};

pub(crate) use admission::{Promoted, Role};
pub(crate) use settings::ServerSettings;

use connection::{Connection, Shas};
use history::History;
use identity::Identity;
use native::NativeCommands;

/// A connection is replaced when its server has been silent for this time, or for twice the node timeout if
/// that is longer.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// A proxy may end a connection at a command that it does not know. After this number of connections, the server gets no
/// commands any more that replace a script.
const UNANSWERED: u8 = 2;

/// How many connections in a row have ended in place of an answer to their first command that replaces a script.
#[derive(Debug, Default)]
struct Unanswered {
    /// The `run_id` of the server. After a restart the server may have another version, so the count begins anew.
    life: Option<String>,
    count: u8,
}

impl Unanswered {
    fn of(&self, identity: &Identity) -> u8 {
        if self.life == identity.run_id { self.count } else { 0 }
    }

    fn count(&mut self, identity: &Identity) {
        let count = self.of(identity).saturating_add(1);
        *self = Self { life: identity.run_id.clone(), count };
    }
}

/// Learns what happens on the servers of a node.
pub(crate) trait Observer: Send + Sync {
    /// A server is connected or not any more. `is_lost` is set if it was connected until now.
    fn status_changed(&self, is_lost: bool);

    /// A server has sent a message, or has replied to a subscription.
    fn received(&self, event: Event);
}

/// One server with its connection. Its connection ends, and is not made anew, when the last handle is dropped.
pub(crate) struct Server {
    inner: Arc<Inner>,
    /// The task that keeps the server connected. It ends with the last handle.
    task: OnceLock<AbortOnDropHandle<()>>,
}

pub(crate) struct Inner {
    pub(crate) endpoint: Endpoint,
    role: Role,
    settings: Arc<ServerSettings>,
    /// The connection, as a copy beside the pool. It is stopped when another server has replaced this one.
    kept: Kept<Connection>,
    pub(crate) gate: Gate,
    /// Represents the server in the registry.
    registered: Arc<()>,
    history: Mutex<History>,
    /// The last kept reading of the wall clock, also across a restart of the server. The leases that the server has kept
    /// end at a time on the wall clock, so a step affects them as well.
    last_reading: Mutex<Option<Reading>>,
    outages: Arc<Mutex<OutageLog>>,
    /// Whether an operation has used the connection since the last reading of the wall clock.
    is_used: AtomicBool,
    unanswered: Mutex<Unanswered>,
    observer: Weak<dyn Observer>,
}

impl Server {
    /// Creates the server of an endpoint. `former` is the master that it replaces.
    pub(crate) fn new(
        endpoint: Endpoint,
        role: Role,
        settings: &Arc<ServerSettings>,
        former: Option<&Self>,
        observer: Weak<dyn Observer>,
    ) -> Arc<Self> {
        let inner = Inner {
            endpoint,
            role,
            settings: Arc::clone(settings),
            kept: Kept::new(),
            gate: Gate::default(),
            registered: Arc::default(),
            history: Mutex::default(),
            last_reading: Mutex::default(),
            outages: former.map_or_else(Arc::default, |former| Arc::clone(&former.outages)),
            is_used: AtomicBool::new(false),
            unanswered: Mutex::default(),
            observer,
        };
        Arc::new(Self { inner: Arc::new(inner), task: OnceLock::new() })
    }

    /// Keeps the server connected in this runtime, until the last handle is dropped.
    pub(crate) fn start(&self, runtime: &Handle) {
        let mut inner = Arc::clone(&self.inner);
        let keep_connected = async move { Arc::clone(&inner).kept.keep(&mut inner).await };
        self.task.get_or_init(|| AbortOnDropHandle::new(runtime.spawn(keep_connected)));
    }

    /// Ends the connection, and makes no other one, because another server was promoted. Other tasks may still have this
    /// server.
    pub(crate) fn stop(&self) {
        self.kept.stopped.cancel();
        self.end_if_stopped();
    }
}

impl Deref for Server {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    /// Returns the name of the server in logs and metrics: that of the node, apart from the masters of a cluster. The node
    /// of a Sentinel group has other masters later.
    pub(crate) fn name(&self) -> &Arc<str> {
        match self.role {
            Role::Alone | Role::Master(_) => &self.settings.voter,
            Role::Member(_) => self.endpoint.name(),
        }
    }

    pub(crate) fn host(&self) -> &str {
        self.endpoint.host()
    }

    /// Returns the round trip of the last reading of the server's clock.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.last_reading.lock().map(|reading| reading.round_trip())
    }

    pub(crate) fn status(&self) -> StatusReceiver {
        self.kept.status()
    }

    pub(crate) fn connection(&self) -> Result<Arc<Connection>, NodeError> {
        self.kept.link_or(|error| self.explain(error))
    }

    /// Adds the address to an error if the server was announced: the node may have several servers, or another one by now.
    pub(crate) fn explain(&self, error: NodeError) -> NodeError {
        self.endpoint.explain(error)
    }

    /// Returns the connection, or an error if the server is silent.
    pub(crate) fn responsive_connection(&self) -> Result<Arc<Connection>, NodeError> {
        let connection = self.connection()?;
        match connection.silence(self.settings.node.node_timeout) {
            Silence::Silent(time) => Err(NodeError::NoReply(time)),
            Silence::CheckAgainAfter(_) => Ok(connection),
        }
    }

    /// Returns the connection for an operation. A silent server receives only releases: other commands
    /// would pile up, and would be useless by the time the server executes them.
    pub(crate) fn connection_for(&self, is_release: bool) -> Result<Arc<Connection>, NodeError> {
        // Mostly it is set, and many threads read it.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        if is_release { self.connection() } else { self.responsive_connection() }
    }

    /// Records whether the server has answered a command that replaces a script, or the connection has ended instead.
    pub(crate) fn record_native(&self, connection: &Connection, is_answered: bool) {
        let native = &connection.native;
        if native.is_answered() {
            return;
        }
        if is_answered {
            native.answered();
            *self.unanswered.lock() = Unanswered::default();
        } else if native.unanswered() {
            self.unanswered.lock().count(&connection.identity);
        }
    }

    /// Waits for the end of the next attempt to connect, which is made soon, or until the server is stopped. Returns whether the
    /// server is connected.
    pub(crate) async fn reconnect(&self) -> bool {
        self.kept.reconnect().await
    }

    /// Ends the connection if the server was stopped: grants of a former master do not count.
    fn end_if_stopped(&self) {
        if self.kept.stopped.is_cancelled()
            && let Ok(connection) = self.connection()
        {
            connection.link.end("another server was promoted");
        }
    }

    /// Waits until the connection breaks, and returns the reason.
    async fn serve(&self, connection: &Connection) -> Arc<str> {
        let (link, settings) = (&connection.link, &self.settings.node);
        let watch_clock = connection.identity.time.map(|_| self.watch_clock(link));
        // A round that waits for the node has ended before, so that the clean-up of its attempt was sent over the same
        // connection (an abandoned attempt leaves nothing behind).
        let silence_limit = SILENCE_LIMIT.max(settings.node_timeout * 2);
        tokio::select! {
            biased;
            reason = link.ended() => reason,
            _ = async {
                tokio::join!(
                    connection.end_when_silent_for(silence_limit),
                    OptionFuture::from(watch_clock),
                    link.keep_authenticated(self.name(), settings.connect_timeout),
                    self.watch_role(link),
                    self.watch_name(connection),
                )
            } => link.ended().await,
        }
    }
}

impl Keeper for Arc<Inner> {
    type Link = Connection;
    type Driver = bb8::Pool<Connector>;

    async fn connect(&mut self) -> Result<(Arc<Connection>, Self::Driver), NodeError> {
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
        let connection = pool.get().await.map(|pooled| Arc::clone(&pooled));
        let connection = connection.map_err(|error| match error {
            bb8::RunError::User(error) => error,
            bb8::RunError::TimedOut => NodeError::NotConnected("no connection in time".into()),
        })?;
        self.admit(&connection.identity)?;
        if !connection.takes_subscriptions {
            let server = self.name();
            log_limited!(
                self.settings.log_limit, "subscriptions", server, warn, node = %server,
                "the server keeps RESP2's rules for a connection with a subscription, so waiters poll"
            );
        }
        let Identity { time, time_refusal, .. } = &connection.identity;
        self.begin_clock_watch(time.ok_or(time_refusal.as_deref()));
        Ok((connection, pool))
    }

    async fn serve(&mut self, connection: Arc<Connection>, _pool: Self::Driver) -> Arc<str> {
        // `stop` may not have found the connection.
        self.end_if_stopped();
        let reason = Inner::serve(self, &connection).await;
        // Pending replies must fail, instead of waiting on a connection that is being replaced.
        connection.link.end(&reason);
        // Nothing may be written any more once there is another connection.
        connection.link.stopped().await;
        self.record_end(&connection.identity);
        reason
    }

    fn changed(&mut self, status: NodeStatus, is_lost: bool) {
        self.outages.lock().record(self.name(), &status);
        if let Role::Member(_) = self.role {
            telemetry::node_up(self.name(), status.is_up());
        }
        if let Some(observer) = self.observer.upgrade() {
            observer.status_changed(is_lost);
        }
    }

    fn explain(&self, error: NodeError) -> NodeError {
        Inner::explain(self, error)
    }

    fn is_refused_login(&self, error: &NodeError) -> bool {
        matches!(error, NodeError::Credentials(words) if error::refuses_login(words))
    }
}

/// Makes the connections of a server.
pub(crate) struct Connector(Arc<Inner>);

impl bb8::ManageConnection for Connector {
    type Connection = Arc<Connection>;
    type Error = NodeError;

    async fn connect(&self) -> Result<Arc<Connection>, NodeError> {
        let Inner { endpoint, settings, role, observer, .. } = &*self.0;
        let limit = settings.node.connect_timeout;
        let observer = Weak::clone(observer);
        let on_event = move |event| {
            if let Some(observer) = observer.upgrade() {
                observer.received(event);
            }
        };
        let connect = async {
            let link = endpoint.open(limit, settings.in_slices, on_event).await?;
            // Only the restart guard needs the margin after a promotion, which may be configured.
            let needs_lag =
                settings.node.restart_guard.is_some() && settings.node.failover_margin.is_none();
            let lag = role.lag_setting().filter(|_| needs_lag);
            let load = encode::load(Script::Rights);
            let takes_subscriptions = link.takes_subscriptions(&settings.locks.channel(), &load);
            let identity = Identity::ask(&link, &*settings.node.clock, lag);
            let prepared = try_join(identity, Shas::load(&link)).await;
            let (identity, shas) = prepared.map_err(|error| error::not_connected(&error))?;
            let (missing, native) = self.0.check_rights(&link, shas.of(Script::Rights)).await?;
            let is_trusted = self.0.unanswered.lock().of(&identity) < UNANSWERED;
            let native = if is_trusted { native.on(&identity) } else { NativeCommands::default() };
            let takes_subscriptions = takes_subscriptions.await;
            Ok(Arc::new(Connection { link, shas, identity, missing, native, takes_subscriptions }))
        };
        let time = ConnectTime::begin(limit);
        timeout(limit, connect).await.map_err(|_| time.late())?
    }

    /// The commands themselves, and the check for silence, detect a broken connection.
    async fn is_valid(&self, _: &mut Arc<Connection>) -> Result<(), NodeError> {
        Ok(())
    }

    /// The server itself makes the next connection, with pauses.
    fn has_broken(&self, _: &mut Arc<Connection>) -> bool {
        false
    }
}

/// An observer that learns nothing.
#[cfg(test)]
struct Nobody;

#[cfg(test)]
impl Observer for Nobody {
    fn status_changed(&self, _: bool) {}
    fn received(&self, _: Event) {}
}

#[cfg(test)]
impl Server {
    /// Sets the connection, or the reason why there is none.
    pub(crate) fn set(&self, current: Result<Arc<Connection>, NodeError>) {
        let mut keeper = Arc::clone(&self.inner);
        self.kept.set(current, |status, is_lost| keeper.changed(status, is_lost));
    }

    /// Returns a server that is not started.
    fn for_tests(role: Role, settings: ServerSettings) -> Arc<Self> {
        let endpoint = Endpoint::parse("redis://localhost");
        let observer = Weak::<Nobody>::new();
        Self::new(endpoint, role, &Arc::new(settings), None, observer)
    }
}
