//! A node that is a Redis or Valkey server.

mod cluster;
mod connection;
mod delayed_restart;
mod encode;
mod error;
mod fair;
mod fencing;
mod link;
mod operation;
#[cfg(test)]
mod order_tests;
mod reply;
mod script;
mod sentinel;
mod settings;
#[cfg(test)]
mod subscription_tests;
mod subscriptions;
mod url;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Action, Capabilities, Node, NodeStatus, Notify, Op, ProcessId, QueueAction, QueueFuture,
    QueueOp, Reply, ReplyFuture, Silence, StatusReceiver, StatusSender, Subscription,
};
use crate::error::{NodeError, Vote};
use crate::lock::LockSpec;
use crate::log_limit::LogLimit;
use crate::telemetry;

pub(crate) use cluster::{ClusterNode, ShardSettings};
pub(crate) use connection::admission::ServerRegistry;
pub(crate) use connection::endpoint::Endpoint;
pub(crate) use connection::route::Route;
#[cfg(feature = "tls")]
pub(crate) use connection::tls::check as check_tls;
pub(crate) use sentinel::SentinelGroup;
pub(crate) use settings::NodeSettings;
pub(crate) use url::{RedisUrl, Servers};

use connection::Connection;
use connection::supervisor::Supervisor;
use delayed_restart::clock_watch::ClockWatch;
use delayed_restart::incarnation::Incarnations;
use delayed_restart::quarantine::Quarantines;
#[cfg(feature = "unstable-simulation")]
use script::Script;
use subscriptions::Subscriptions;

/// A node that is one server. A supervisor replaces its connection when it breaks.
///
/// There is never more than one usable connection, so that commands arrive in the order in which they were
/// sent (an abandoned attempt leaves nothing behind). Without a connection, every operation fails at once,
/// so that no caller waits for the node.
pub(crate) struct RedisNode {
    route: Route,
    settings: NodeSettings,
    /// The current connection, as a copy beside the pool, so that a command needs no mutex to find it.
    current: ArcSwap<ConnectionState>,
    status: StatusSender,
    /// Cancelled when the node is dropped, which ends the supervisor.
    dropped: CancellationToken,
    _cancel_on_drop: DropGuard,
    subscriptions: Arc<Subscriptions>,
    incarnations: Mutex<Incarnations>,
    /// The quarantines of servers whose locks this server has taken over. They outlast the connection.
    taken_over: Mutex<Quarantines>,
    clock_watch: Arc<ClockWatch>,
    /// Limits the log lines about this node's connections.
    log_limit: Arc<LogLimit>,
    weak_self: Weak<Self>,
}

/// The connection to a server, or the reason why there is none.
#[derive(Debug, Clone)]
enum ConnectionState {
    Up(Arc<Connection>),
    Down(NodeError),
}

impl RedisNode {
    pub(crate) fn new(route: Route, settings: NodeSettings) -> Arc<Self> {
        let down = ConnectionState::Down(NodeError::NotConnected("not connected yet".into()));
        let dropped = CancellationToken::new();
        let log_limit = Arc::default();
        let clock_watch =
            ClockWatch::new(route.name(), &settings.clock, settings.restart_guard, &log_limit);
        Arc::new_cyclic(|weak_self| Self {
            route,
            settings,
            current: ArcSwap::from_pointee(down),
            status: StatusSender::new(NodeStatus::Connecting),
            _cancel_on_drop: dropped.clone().drop_guard(),
            dropped,
            subscriptions: Arc::default(),
            incarnations: Mutex::default(),
            taken_over: Mutex::default(),
            clock_watch: Arc::new(clock_watch),
            log_limit,
            weak_self: Weak::clone(weak_self),
        })
    }

    fn set(&self, state: ConnectionState) {
        let up = matches!(state, ConnectionState::Up(_));
        telemetry::node_up(self.route.name(), up);
        let status = match &state {
            ConnectionState::Up(_) => NodeStatus::Up,
            ConnectionState::Down(reason) => NodeStatus::Down(reason.clone()),
        };
        // The mutex is held for both steps, so that the new connection misses no quarantine.
        let taken_over = self.taken_over.lock();
        if let ConnectionState::Up(connection) = &state {
            connection.start_all(*taken_over);
        }
        self.current.store(Arc::new(state));
        drop(taken_over);
        self.status.send(status);
    }

    /// Starts the quarantines of a server whose locks this server has taken over.
    fn take_over(&self, quarantines: Quarantines) {
        let mut taken_over = self.taken_over.lock();
        taken_over.add(quarantines);
        if let ConnectionState::Up(connection) = &**self.current.load() {
            connection.start_all(*taken_over);
        }
    }

    fn connection(&self) -> Result<Arc<Connection>, NodeError> {
        match &**self.current.load() {
            ConnectionState::Up(connection) if connection.is_alive() => Ok(Arc::clone(connection)),
            ConnectionState::Up(_) => Err(NodeError::NotConnected("the connection broke".into())),
            ConnectionState::Down(reason) => Err(reason.clone()),
        }
    }

    /// Returns the connection for an operation. A silent server receives only releases: other commands
    /// would pile up, and would be useless by the time the server executes them.
    fn connection_for(&self, action: &Action) -> Result<Arc<Connection>, NodeError> {
        let connection = self.connection()?;
        match action {
            Action::Acquire { .. } => connection.may_grant()?,
            Action::Extend { .. }
            | Action::Confirm { .. }
            | Action::Downgrade
            | Action::Withdraw { .. } => {}
            Action::Release { .. } => return Ok(connection),
        }
        self.check_replies(connection)
    }

    /// Returns the connection, or an error if the server is silent.
    fn check_replies(&self, connection: Arc<Connection>) -> Result<Arc<Connection>, NodeError> {
        match connection.silent_for(self.settings.node_timeout) {
            Some(time) => Err(NodeError::NoReply(time)),
            None => Ok(connection),
        }
    }

    /// Returns the connection for an operation on a fair queue.
    fn connection_for_queue(&self, action: &QueueAction) -> Result<Arc<Connection>, NodeError> {
        let connection = self.connection()?;
        match action {
            QueueAction::Leave { .. } => Ok(connection),
            _ => self.check_replies(connection),
        }
    }
}

impl RedisNode {
    /// Keeps the node connected in this runtime, until the node is dropped.
    pub(crate) fn start(&self, runtime: &Handle) {
        if let Route::Sentinel(group) = &self.route {
            group.start(runtime, &self.dropped);
        }
        runtime.spawn(Supervisor::new(self).keep_connected());
    }
}

impl Node for RedisNode {
    fn name(&self) -> &Arc<str> {
        self.route.name()
    }

    fn capabilities(&self) -> Capabilities {
        let defaults = Capabilities::default();
        Capabilities { shared: true, several_keys: true, fair: true, ..defaults }
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let connection = match self.connection_for(&op.action) {
            Ok(connection) => connection,
            Err(reason) => return ReplyFuture::ready(Vote::Failed(reason)),
        };
        if matches!(op.action, Action::Acquire { .. } | Action::Extend { .. }) {
            connection.record_use();
        }
        let not_counted = match op.action {
            Action::Extend { .. } | Action::Confirm { .. } => connection.may_extend().err(),
            _ => None,
        };
        let (begun, node_timeout) = (operation::begun(&op.action), self.settings.node_timeout);
        ReplyFuture::new(async move {
            let reply = operation::execute(&connection, &op, begun, node_timeout, false).await;
            match not_counted {
                None => reply,
                Some(reason) => uncounted(reply, reason),
            }
        })
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        let is_shared = spec.mode().is_shared();
        self.subscriptions.subscribe(&operation::channel(spec), is_shared, notify)
    }

    fn request_turn(&self, spec: &LockSpec) -> Subscription {
        self.subscriptions.subscribe(&operation::turn_channel(spec), true, Arc::new(|| {}))
    }

    fn queue(&self, op: QueueOp) -> QueueFuture {
        match self.connection_for_queue(&op.action) {
            Ok(connection) => Box::pin(async move { fair::execute(&connection, &op, false).await }),
            Err(reason) => Box::pin(std::future::ready(Err(reason))),
        }
    }

    fn subscribe_queue(&self, spec: &LockSpec, process: ProcessId, notify: Notify) -> Subscription {
        self.subscriptions.subscribe(&fair::channel(spec, process), false, notify)
    }

    fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        match self.connection() {
            Ok(connection) => connection.silence(limit),
            // Commands that were sent over the ended connection fail.
            Err(_) => Silence::Silent(waited),
        }
    }
}

/// Returns the reply of a server whose grant does not count.
fn uncounted(reply: Reply, reason: NodeError) -> Reply {
    if reply.vote == Vote::Granted { Vote::Failed(reason).into() } else { reply }
}

/// Returns the name and the source of each script.
#[cfg(feature = "unstable-simulation")]
pub fn scripts() -> impl Iterator<Item = (String, &'static str)> {
    Script::ALL.into_iter().map(|script| (script.name().to_owned(), script.source()))
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode")
            .field("name", self.route.name())
            .field("connected", &self.connection().is_ok())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::connection::played_server::{played_connection, serve};
    use super::delayed_restart::quarantine::Quarantine;
    use super::*;
    use crate::key::LockKey;
    use crate::lock::{Dialect, Mode, Token};
    use crate::validity;

    const LEASE: Duration = Duration::from_secs(30);

    fn node(node_timeout: Duration, connection: Connection) -> Arc<RedisNode> {
        let route = Route::Server(Box::new(Endpoint::parse("redis://localhost")));
        let node = RedisNode::new(route, NodeSettings::for_tests(node_timeout, LEASE));
        node.set(ConnectionState::Up(Arc::new(connection)));
        node
    }

    fn op(action: Action) -> Op {
        let key = LockKey::new("order:42").unwrap();
        let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
        Op::new(&spec, Token::random(Dialect::Plain), action)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_sent_only_releases() {
        const NODE_TIMEOUT: Duration = Duration::from_millis(50);
        let (connection, mut server) = played_connection();
        let node = node(NODE_TIMEOUT, connection);
        let acquire = Action::Acquire {
            lease: LEASE,
            fenced: true,
            lookup: true,
            met_marks: false,
            mark: None,
        };
        let extend = Action::Extend { lease: LEASE };
        let mut first = node.call(op(acquire));
        assert!(futures_util::poll!(&mut first).is_pending());
        tokio::time::sleep(NODE_TIMEOUT * 2).await;
        for action in [acquire, extend, Action::Confirm { number: 1 }] {
            let reply = node.call(op(action));
            let vote = reply.as_ready().map(|reply| &reply.vote);
            assert!(matches!(vote, Some(Vote::Failed(NodeError::NoReply(_)))), "{reply:?}");
        }
        let mut release = node.call(op(Action::Release { min_hold: None }));
        assert!(futures_util::poll!(&mut release).is_pending());
        // The reply to the first command shows that the server works.
        serve(&mut server, "acquire", "$1\r\n7\r\n", || {}).await;
        assert_eq!(first.await, crate::node::Reply::new(Vote::Granted).with_number(7));
        assert!(node.call(op(extend)).as_ready().is_none());
    }

    /// The former master may still grant the lock to another caller. But the lock must not end at the promoted server.
    #[tokio::test(start_paused = true)]
    async fn a_promoted_server_extends_at_once_but_its_vote_counts_only_after_the_margin() {
        let (connection, mut server) = played_connection();
        connection.start(Quarantine::after_promotion(LEASE, LEASE / 10, Instant::now()));
        let node = node(LEASE, connection);
        let mut extend = async |reply: &str| {
            let granted = serve(&mut server, "extend", reply, || {});
            tokio::join!(node.call(op(Action::Extend { lease: LEASE })), granted).0.vote
        };
        let vote = extend(":1\r\n").await;
        assert!(matches!(vote, Vote::Failed(NodeError::Promoted { .. })), "{vote:?}");
        assert_eq!(extend(":0\r\n").await, Vote::NotHeld, "a lock that it does not have is lost");
        tokio::time::sleep(LEASE / 10).await;
        assert_eq!(extend(":1\r\n").await, Vote::Granted);
    }

    /// The refusal is certain at this point. The look-up of the remaining TTL must not make the
    /// vote late.
    #[tokio::test(start_paused = true)]
    async fn the_ttl_after_a_refusal_is_looked_up_only_until_the_round_ends() {
        const SECOND: Duration = Duration::from_secs(1);
        for (node_timeout, lease, round) in [
            (SECOND, 30 * SECOND, SECOND),
            (30 * SECOND, SECOND, validity::remaining(SECOND, Duration::ZERO)),
        ] {
            let (connection, mut server) = played_connection();
            let node = node(node_timeout, connection);
            let acquire = Action::Acquire {
                lease,
                fenced: false,
                lookup: true,
                met_marks: false,
                mark: None,
            };
            let refuse = serve(&mut server, "SET", "_\r\n", || {});
            let reply = async { tokio::join!(node.call(op(acquire)), refuse).0 };
            let reply = tokio::time::timeout(round, reply).await;
            assert_eq!(reply.unwrap().vote, Vote::Held { remaining: None }, "{lease:?}");
        }
    }
}
