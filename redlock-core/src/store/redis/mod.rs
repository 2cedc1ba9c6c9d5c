//! A node of Redis or Valkey servers: one server, a Sentinel group, or a Redis Cluster.
//!
//! * [`client`]: a client for values that are no locks.
//! * [`state`]: the state that operations and tasks of a node share.
//! * [`repeat`]: sends an operation, and sends it again if no server has executed it.
//! * [`without_script`], [`awaited_keys`]: operations by commands of newer servers, and the keys that need the script.
//! * [`pending`]: the servers that may still execute an operation, which a release must follow.
//! * [`inspection`]: a look at a lock, and the removal of a holder.
//! * [`operation`], [`fair`], [`reply`]: from an operation to its command, and from the reply to the vote.
//! * [`channel`], [`subscriptions`]: the channels on which releases are published.
//! * [`watches`]: the watches of holders, which are notified when their lock is gone.
//! * [`map`]: which server owns which slot.
//! * [`server`]: one server with its connection.
//! * [`link`]: one connection, which pairs commands and replies.

mod awaited_keys;
mod channel;
pub(crate) mod client;
mod encode;
mod error;
mod fair;
mod fencing;
mod inspection;
#[cfg(test)]
mod label_tests;
mod link;
mod map;
#[cfg(test)]
mod node_tests;
mod operation;
#[cfg(test)]
mod order_tests;
mod pending;
#[cfg(test)]
mod played_node;
mod repeat;
#[cfg(test)]
mod repeat_tests;
mod reply;
mod script;
mod sentinel;
mod server;
mod state;
#[cfg(test)]
mod subscription_tests;
mod subscriptions;
mod url;
mod watches;
mod without_script;
#[cfg(test)]
mod without_script_tests;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use crate::access::TlsOptions;
use crate::error::{InvalidOption, NodeError, Vote};
use crate::key::LockKey;
use crate::lock::{HolderId, LockSpec, Token};
use crate::log_limit::LogLimit;
use crate::node::{
    Action, Capabilities, FairOrder, Inspection, KeyRules, LookFuture, LossHints, Node, NodeReport,
    NodeSettings, NodeStatus, Notify, Op, ProcessId, QueueFuture, QueueOp, Reconnection, Remote,
    RemovalFuture, ReplyFuture, Silence, StatusReceiver, StatusSender, Subscription, Turns,
};
use crate::store::kit::description::{NodeOptions, StoreUrl};
use crate::store::kit::kept::silence_of;
use crate::store::kit::registry::ServerRegistry;
use crate::store::kit::url::HostPort;

use fencing::{hash_tag, slot};
use inspection::Inspect;
use link::open::Endpoint;
#[cfg(feature = "unstable-simulation")]
use script::Script;
use server::rights::CheckedLocks;
use server::{Server, ServerSettings};
use state::RedisState;
pub(crate) use url::RedisUrl;
use url::Servers;

/// The default time between two readings of the slots of a cluster.
const CLUSTER_REFRESH: Duration = Duration::from_secs(5);

/// A node of Redis or Valkey servers.
struct RedisNode {
    name: Arc<str>,
    options: Mutex<Option<RedisOptions>>,
    is_cluster: bool,
    status: StatusSender,
    started: OnceLock<Arc<RedisState>>,
    /// The task that keeps the map up to date. It ends when the node is dropped.
    resolver: OnceLock<AbortOnDropHandle<()>>,
}

/// The options of a node, apart from those of [every node](NodeSettings).
struct RedisOptions {
    url: RedisUrl,
    /// The endpoint, if the URL is that of one server.
    endpoint: Option<Endpoint>,
    registry: Arc<ServerRegistry>,
    locks: CheckedLocks,
    /// The time between two readings of the slots of a cluster.
    cluster_refresh: Duration,
    /// Whether the manager has no other node.
    is_only_node: bool,
}

impl StoreUrl for RedisUrl {
    /// The addresses, the service of a Sentinel group, and the database unless it is 0.
    fn name(&self) -> String {
        let list = |servers: &[HostPort]| {
            servers.iter().map(HostPort::to_string).collect::<Vec<_>>().join(",")
        };
        let address = match &self.servers {
            Servers::Tcp(server) => server.to_string(),
            Servers::Unix(path) => path.display().to_string(),
            Servers::Sentinel { sentinels, service, .. } => {
                format!("{service}@{}", list(sentinels))
            }
            Servers::Cluster { seeds } => list(seeds),
        };
        if self.db == 0 { address } else { format!("{address}/{}", self.db) }
    }

    fn tls(&mut self) -> Option<&mut Option<TlsOptions>> {
        Some(&mut self.tls)
    }

    fn is_local(&self) -> bool {
        matches!(self.servers, Servers::Unix(_))
    }

    fn into_node(mut self: Box<Self>, options: &NodeOptions<'_>) -> Result<Arc<dyn Node>, String> {
        if self.login.password.is_none() && self.login.provider.is_none() {
            self.login.provider = options.provider(self.name());
        }
        let endpoint = Endpoint::of_one(&self);
        #[cfg(feature = "unstable-simulation")]
        let endpoint = endpoint.map(|endpoint| match options.dials.get(&self.name()) {
            Some(dial) => endpoint.dialed_by(Arc::clone(dial)),
            None => endpoint,
        });
        Ok(Arc::new(RedisNode::new(RedisOptions {
            endpoint,
            url: *self,
            registry: Arc::clone(&options.registry),
            locks: CheckedLocks { prefix: options.prefix.into(), dialect: options.dialect },
            cluster_refresh: options.cluster_refresh.unwrap_or(CLUSTER_REFRESH),
            is_only_node: options.is_only_node,
        })))
    }
}

impl RedisNode {
    /// Creates a node that is not started yet: every operation fails.
    fn new(options: RedisOptions) -> Self {
        Self {
            name: options.url.name().into(),
            is_cluster: matches!(options.url.servers, Servers::Cluster { .. }),
            options: Mutex::new(Some(options)),
            status: StatusSender::new(NodeStatus::Connecting),
            started: OnceLock::new(),
            resolver: OnceLock::new(),
        }
    }

    fn started(&self) -> Result<&Arc<RedisState>, NodeError> {
        self.started.get().ok_or_else(|| NodeError::NotConnected("the node was not started".into()))
    }

    fn subscribe_to(
        &self,
        spec: &LockSpec,
        channel: &Arc<str>,
        is_shared: bool,
        notify: Notify,
    ) -> Subscription {
        let Ok(state) = self.started() else { return Subscription::new(|| {}) };
        let slot = state.map.slot(spec.name());
        state.subscriptions.subscribe(channel, slot, is_shared, notify)
    }
}

impl Node for RedisNode {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { restart_guard: true, ..Capabilities::of_library() }
    }

    fn start(&self, runtime: &Handle, settings: &NodeSettings) {
        let Some(options) = self.options.lock().take() else { return };
        let RedisOptions { url, endpoint, registry, locks, cluster_refresh, is_only_node } =
            options;
        if self.is_cluster {
            tracing::info!(
                node = %self.name,
                "a Redis Cluster locks several keys at once only in one slot: give the keys of a set a common hash tag, \
                 as in {{shop}}:sku:7 (in a template: {{{{shop}}}}), or the manager a prefix with one"
            );
        }
        let settings = ServerSettings {
            voter: Arc::clone(&self.name),
            node: settings.clone(),
            log_limit: LogLimit::new(Arc::clone(&settings.clock)),
            registry,
            locks,
            refresh: cluster_refresh,
            in_slices: is_only_node && !self.is_cluster,
        };
        let state = RedisState::new(url, settings, self.status.clone(), runtime);
        let state = self.started.get_or_init(|| state);
        if let Some(resolver) = state.map.start(endpoint) {
            self.resolver.get_or_init(|| resolver);
        }
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let begin = |state: &Arc<RedisState>| {
            let state = Arc::clone(state);
            Ok(match op.action {
                Action::Release { .. } => ReplyFuture::new(state.release(op)),
                _ => state.execute(op)?,
            })
        };
        let reply = self.started().and_then(begin);
        reply.unwrap_or_else(|reason| ReplyFuture::ready(Vote::Failed(reason)))
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        let is_shared = spec.mode().is_shared();
        self.subscribe_to(spec, &channel::of(spec), is_shared, notify)
    }

    fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn turns(&self) -> Option<&dyn Turns> {
        Some(self)
    }

    fn fair_order(&self) -> Option<&dyn FairOrder> {
        Some(self)
    }

    fn key_rules(&self) -> Option<&dyn KeyRules> {
        Some(self)
    }

    fn inspection(&self) -> Option<&dyn Inspection> {
        Some(self)
    }

    fn loss_hints(&self) -> Option<&dyn LossHints> {
        Some(self)
    }

    fn report(&self) -> NodeReport {
        let mut report = NodeReport::new("redis");
        if let Ok(shared) = self.started() {
            shared.map.describe(&mut report);
        }
        report
    }
}

impl Inspection for RedisNode {
    fn look(&self, spec: &LockSpec) -> LookFuture {
        match self.started() {
            Ok(shared) => {
                let question = Inspect { spec: spec.clone(), remove: None };
                Box::pin(Arc::clone(shared).inspect(question, inspection::found))
            }
            Err(reason) => Box::pin(std::future::ready(Err(reason))),
        }
    }

    fn remove(&self, spec: &LockSpec, holder: HolderId) -> RemovalFuture {
        match self.started() {
            Ok(shared) => {
                let question = Inspect { spec: spec.clone(), remove: Some(holder) };
                Box::pin(Arc::clone(shared).inspect(question, inspection::removal))
            }
            Err(reason) => Box::pin(std::future::ready(Err(reason))),
        }
    }
}

impl LossHints for RedisNode {
    fn watch(&self, spec: &LockSpec, token: Token, notify: Notify) -> Subscription {
        match self.started() {
            Ok(state) => state.watches.watch(spec, token, notify),
            Err(_) => Subscription::new(|| {}),
        }
    }

    /// The holder's process may lack the rights by which the server tracks keys, so that it listens on a channel.
    fn announce_removal(&self, spec: &LockSpec, holder: HolderId) {
        if let Ok(state) = self.started() {
            state.watches.announce_removal(spec.name(), holder);
        }
    }
}

impl Remote for RedisNode {
    fn product(&self) -> Option<&'static str> {
        let is_elsewhere = self.started().is_ok_and(|state| state.map.has_announced_server());
        // The servers of a cluster announce each other.
        (!self.is_cluster && !is_elsewhere).then_some("Redis")
    }

    /// Another server may own the slot by the end of an attempt to connect. The caller then waits for that server.
    fn reconnect(&self, spec: &LockSpec) -> Reconnection {
        let (state, spec) = (self.started().cloned(), spec.clone());
        Box::pin(async move {
            let Ok(state) = state else { return false };
            let mut tried: Option<Arc<Server>> = None;
            while let Ok(owner) = state.map.owner(spec.name())
                && !tried.is_some_and(|tried| Arc::ptr_eq(&tried, &owner))
            {
                if owner.reconnect().await {
                    return true;
                }
                tried = Some(owner);
            }
            false
        })
    }

    /// A cluster grants locks as long as one of its masters does.
    fn is_granting(&self) -> bool {
        let is_open = |server: &Arc<Server>| server.gate.check_grants().is_ok();
        self.started().is_ok_and(|state| state.map.masters().iter().any(is_open))
    }

    /// A caller of a cluster waits for one master, and this method does not know for which. So the node is silent for a
    /// caller that has waited for `limit` while any master owes a reply and is silent. The operations on a server whose
    /// connection is down have failed, or fail at their next poll.
    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        let Ok(state) = self.started() else { return Silence::Silent(waited) };
        let servers = state.map.all();
        let rest = if self.is_cluster { limit.saturating_sub(waited) } else { Duration::ZERO };
        let connections = servers.iter().filter_map(|server| server.connection().ok());
        silence_of(connections.map(|connection| connection.link.silence(limit)), rest, waited)
    }
}

impl Turns for RedisNode {
    fn request_turn(&self, spec: &LockSpec) -> Subscription {
        self.subscribe_to(spec, &channel::of_turns(spec), true, Arc::new(|| {}))
    }
}

impl FairOrder for RedisNode {
    fn queue(&self, op: QueueOp) -> QueueFuture {
        match self.started() {
            Ok(state) => Box::pin(Arc::clone(state).queue(op)),
            Err(reason) => Box::pin(std::future::ready(Err(reason))),
        }
    }

    fn subscribe_queue(&self, spec: &LockSpec, process: ProcessId, notify: Notify) -> Subscription {
        self.subscribe_to(spec, &fair::channel(spec, process), false, notify)
    }
}

impl KeyRules for RedisNode {
    /// A `{` that begins no hash tag leaves no name for the fencing counter, or for the fair queue, in the slot of its lock.
    fn check_prefix(&self, prefix: &str) -> Result<(), InvalidOption> {
        if !prefix.contains('{') || hash_tag(prefix).is_some() {
            return Ok(());
        }
        let allowed = format!(
            "without `{{`, or with a hash tag such as `{{locks}}:`, for fenced and fair locks on the Redis node {}",
            self.name
        );
        Err(InvalidOption::new("prefix", format!("{prefix:?}"), allowed))
    }

    /// A script may use keys of one slot only.
    fn check_keys(&self, keys: &[LockKey]) -> Result<(), InvalidOption> {
        let Some((first, rest)) = keys.split_first().filter(|_| self.is_cluster) else {
            return Ok(());
        };
        let other = rest.iter().find(|other| slot(other.name()) != slot(first.name()));
        other.map_or(Ok(()), |other| {
            let allowed = format!(
                "in one slot of the Redis Cluster {}; a common hash tag puts them there, as in {{tag}}:{first} and \
                 {{tag}}:{other} (in a template: {{{{tag}}}}), or in the prefix of the manager",
                self.name
            );
            Err(InvalidOption::new("keys", format!("{first:?} and {other:?}"), allowed))
        })
    }
}

/// Returns the name and the source of each script.
#[cfg(feature = "unstable-simulation")]
pub fn scripts() -> impl Iterator<Item = (String, &'static str)> {
    Script::ALL.into_iter().map(|script| (script.name().to_owned(), script.source()))
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode")
            .field("name", &self.name)
            .field("status", &self.status.subscribe().get())
            .finish_non_exhaustive()
    }
}
