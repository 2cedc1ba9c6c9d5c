//! A node over a PostgreSQL server: each lock is a row of a table.
//!
//! * [`url`]: reads the URL of a node.
//! * [`sql`]: the statements.
//! * [`schema`]: the table, and the checks before its first use.
//! * [`state`]: the state of a node; from an operation to its statement, and from the answer to the vote.
//! * [`inspection`]: a look at a lock, the removal of its holder, and the description of a node.
//! * [`connect`]: makes a connection.
//! * [`pooler`]: recognises a pooler in transaction mode.
//! * [`socket`]: the socket of a connection, with TLS or without.
//! * [`session`]: executes statements over a connection.
//! * [`link`]: drives a connection.
//! * [`channels`]: the channels on which releases are notified.
//! * [`unsettled`]: acquisitions behind a pooler that have no reply.
//! * [`client`]: a client for rows that are no locks.

mod channels;
#[cfg(test)]
mod channels_tests;
pub(crate) mod client;
mod connect;
mod error;
mod inspection;
mod link;
#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod played_server;
mod pooler;
mod schema;
mod session;
mod socket;
mod sql;
mod state;
#[cfg(test)]
mod state_tests;
#[cfg(feature = "tls")]
mod tls;
mod unsettled;
mod url;

use std::fmt;
use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_postgres::config::Host;
use tokio_util::task::AbortOnDropHandle;

use crate::access::TlsOptions;
use crate::error::{NodeError, Vote};
use crate::lock::{HolderId, LockSpec, Token};
use crate::node::{
    Capabilities, Fencing, Inspection, LookFuture, LossHints, Node, NodeReport, NodeSettings,
    NodeStatus, Notify, Op, Reconnection, Remote, RemovalFuture, ReplyFuture, Silence,
    StatusReceiver, StatusSender, Subscription,
};
use crate::store::kit::description::{NodeOptions, StoreUrl};

pub use schema::postgres_schema;

use state::PostgresState;
pub(crate) use url::PostgresUrl;
use url::address;

struct StartedNode {
    state: Arc<PostgresState>,
    /// They end when the node is dropped.
    _tasks: Vec<AbortOnDropHandle<()>>,
    runtime: Handle,
}

/// A node over a PostgreSQL server, or over a primary server with its standbys.
struct PostgresNode {
    name: Arc<str>,
    url: PostgresUrl,
    status: StatusSender,
    started: OnceLock<StartedNode>,
}

impl StoreUrl for PostgresUrl {
    /// The hosts, the database, and the schema unless it is `public`.
    fn name(&self) -> String {
        let database = self.config.get_dbname().unwrap_or_default();
        let servers: Vec<_> = self.servers().map(|(host, port)| address(host, port)).collect();
        let name = format!("{}/{database}", servers.join(","));
        if self.schema == "public" { name } else { format!("{name}/{}", self.schema) }
    }

    fn tls(&mut self) -> Option<&mut Option<TlsOptions>> {
        Some(&mut self.tls)
    }

    fn is_local(&self) -> bool {
        self.servers().all(|(host, _)| !matches!(host, Host::Tcp(_)))
    }

    fn into_node(mut self: Box<Self>, options: &NodeOptions<'_>) -> Result<Arc<dyn Node>, String> {
        if self.provider.is_none() && self.config.get_password().is_none() {
            self.provider = options.provider(self.name());
        }
        Ok(Arc::new(PostgresNode::new(*self)))
    }
}

impl PostgresNode {
    /// Creates a node that is not started yet: every operation fails.
    fn new(url: PostgresUrl) -> Self {
        Self {
            name: url.name().into(),
            url,
            status: StatusSender::new(NodeStatus::Connecting),
            started: OnceLock::new(),
        }
    }

    fn state(&self) -> Option<&Arc<PostgresState>> {
        self.started.get().map(|started| &started.state)
    }

    fn started(&self) -> Result<&Arc<PostgresState>, NodeError> {
        self.state().ok_or_else(|| NodeError::NotConnected("the node was not started".into()))
    }
}

impl Node for PostgresNode {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        // A pooler may lead to another server without the end of a connection.
        let restart_guard = !self.url.has_pooler;
        Capabilities { fencing: Fencing::Quorum, restart_guard, ..Capabilities::default() }
    }

    fn store_id(&self) -> Option<Arc<str>> {
        self.state()?.store_id.get().cloned()
    }

    fn start(&self, runtime: &Handle, settings: &NodeSettings) {
        self.started.get_or_init(|| {
            let (name, status) = (Arc::clone(&self.name), self.status.clone());
            let (state, tasks) =
                PostgresState::start(name, self.url.clone(), settings.clone(), status, runtime);
            StartedNode { state, _tasks: tasks, runtime: runtime.clone() }
        });
    }

    fn call(&self, op: Op) -> ReplyFuture {
        match self.started().and_then(|state| state.check(&op).map(|_| Arc::clone(state))) {
            Ok(state) => ReplyFuture::new(state.execute(op)),
            Err(reason) => ReplyFuture::ready(Vote::Failed(reason)),
        }
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        match self.state() {
            Some(state) => state.channels.subscribe(channels::channel(spec.name()), notify),
            None => Subscription::new(|| {}),
        }
    }

    fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn inspection(&self) -> Option<&dyn Inspection> {
        Some(self)
    }

    fn loss_hints(&self) -> Option<&dyn LossHints> {
        Some(self)
    }

    fn report(&self) -> NodeReport {
        let without_connection = || inspection::report(&self.url);
        self.state().map_or_else(without_connection, |shared| shared.report())
    }
}

impl Inspection for PostgresNode {
    fn look(&self, spec: &LockSpec) -> LookFuture {
        match self.started() {
            Ok(shared) => Box::pin(Arc::clone(shared).look(spec.clone())),
            Err(reason) => Box::pin(ready(Err(reason))),
        }
    }

    fn remove(&self, spec: &LockSpec, holder: HolderId) -> RemovalFuture {
        match self.started() {
            Ok(shared) => Box::pin(Arc::clone(shared).remove(spec.clone(), holder)),
            Err(reason) => Box::pin(ready(Err(reason))),
        }
    }
}

impl LossHints for PostgresNode {
    fn watch(&self, spec: &LockSpec, token: Token, notify: Notify) -> Subscription {
        match self.started.get() {
            Some(StartedNode { state, runtime, .. }) if !self.url.has_pooler => {
                state.watch(spec, token, notify, runtime)
            }
            _ => Subscription::new(|| {}),
        }
    }
}

impl Remote for PostgresNode {
    fn product(&self) -> Option<&'static str> {
        Some("PostgreSQL")
    }

    fn reconnect(&self, spec: &LockSpec) -> Reconnection {
        let (state, spec) = (self.state().cloned(), spec.clone());
        Box::pin(async move {
            match state {
                Some(state) => state.slot(spec.name()).reconnect().await,
                None => false,
            }
        })
    }

    fn is_granting(&self) -> bool {
        self.state().is_some_and(|state| state.gate.check_grants().is_ok())
    }

    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        match self.state() {
            Some(state) => state.silence(limit, waited),
            None => Silence::Silent(waited),
        }
    }
}

impl fmt::Debug for PostgresNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresNode")
            .field("name", &self.name)
            .field("status", &self.status.subscribe().get())
            .finish_non_exhaustive()
    }
}
