//! A node over a ZooKeeper ensemble: the lock recipe of Curator's `InterProcessMutex`, whose locks end with a session.
//!
//! ZooKeeper calls its data nodes znodes. A lock is a folder of ephemeral znodes with numbers: the first one holds the lock, and
//! the others wait.
//!
//! The store has its own client of the wire protocol, because the lock needs what no client crate gives:
//!
//! * **Evidence.** [`evidence`] proves by beats that a session is alive until the end of a lease. It needs the moment before each beat
//!   and each handshake, and beats on the connection of the locks, in order with the requests.
//! * **No stored requests.** An operation without a connection fails at once. `zookeeper-client`, which reads the negotiated
//!   timeout and knows `sync`, keeps requests while it is not connected: an abandoned acquisition would set its lock later.
//! * **TLS.** `zookeeper-client` needs aws-lc-rs, and the other stores use rustls with ring.
//!
//! * [`url`]: reads the URL of a node.
//! * [`path`]: the paths of locks, and the names of their znodes.
//! * [`locks`]: the locks of a node; from an operation to its requests, and from their replies to the vote.
//! * [`places`]: the places of this process in the queues of the locks that it waits for.
//! * [`watches`]: the watches of holders, which are notified when their znode is gone.
//! * [`znodes`]: makes, lists and removes znodes.
//! * [`inspection`]: a look at a lock, and the removal of its holder.
//! * [`session`]: keeps the session with the ensemble.
//! * [`evidence`]: the evidence that a session is alive.
//! * [`connect`]: makes a connection.
//! * [`requests`]: the requests, their replies, and the errors of the servers.
//! * [`jute`]: the encoding of the protocol.

mod connect;
mod evidence;
mod frames;
mod inspection;
#[cfg(test)]
mod inspection_tests;
mod jute;
mod link;
#[cfg(test)]
mod link_tests;
mod locks;
mod path;
mod places;
#[cfg(test)]
mod played_server;
mod requests;
mod session;
#[cfg(test)]
mod session_tests;
mod url;
mod watches;
mod znodes;

use std::fmt;
use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::access::TlsOptions;
use crate::error::{NodeError, Vote};
use crate::lock::{HolderId, LockSpec, Token};
use crate::node::{
    Capabilities, Fencing, Inspection, LookFuture, LossHints, Node, NodeReport, NodeSettings,
    NodeStatus, Notify, Op, Ordered, Reconnection, Remote, RemovalFuture, ReplyFuture,
    ServerReport, Silence, StatusReceiver, StatusSender, Subscription,
};
use crate::store::kit::description::{NodeOptions, StoreUrl};
use crate::store::kit::url::HostPort;

use locks::ZookeeperLocks;
use session::ZookeeperSession;
pub(crate) use url::ZookeeperUrl;
use znodes::Znodes;

/// A node over a ZooKeeper ensemble.
struct ZookeeperNode {
    name: Arc<str>,
    url: Mutex<Option<ZookeeperUrl>>,
    /// The servers of the URL.
    servers: Vec<ServerReport>,
    longest_lease: Duration,
    status: StatusSender,
    started: OnceLock<Arc<ZookeeperLocks>>,
}

impl StoreUrl for ZookeeperUrl {
    /// The hosts and the chroot.
    fn name(&self) -> String {
        let servers: Vec<_> = self.servers.iter().map(HostPort::to_string).collect();
        format!("{}{}", servers.join(","), self.chroot)
    }

    fn longest_lease(&self) -> Option<Duration> {
        Some(self.longest_lease())
    }

    fn tls(&mut self) -> Option<&mut Option<TlsOptions>> {
        Some(&mut self.tls)
    }

    fn into_node(mut self: Box<Self>, options: &NodeOptions<'_>) -> Result<Arc<dyn Node>, String> {
        self.provider = self.provider.take().or_else(|| options.provider(self.name()));
        self.check_acl()?;
        Ok(Arc::new(Ordered::new(ZookeeperNode::new(*self))))
    }
}

impl ZookeeperNode {
    /// Creates a node that is not started yet: every operation fails.
    fn new(url: ZookeeperUrl) -> Self {
        Self {
            name: url.name().into(),
            longest_lease: url.longest_lease(),
            servers: url
                .servers
                .iter()
                .map(|server| ServerReport::new(server.to_string(), false))
                .collect(),
            url: Mutex::new(Some(url)),
            status: StatusSender::new(NodeStatus::Connecting),
            started: OnceLock::new(),
        }
    }

    fn started(&self) -> Result<&Arc<ZookeeperLocks>, NodeError> {
        let not_started = || NodeError::NotConnected("the node was not started".into());
        self.started.get().ok_or_else(not_started)
    }
}

impl Node for ZookeeperNode {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            longest_lease: self.longest_lease,
            fencing: Fencing::Alone,
            min_hold: false,
            only_node: true,
            ordered: false,
            ..Capabilities::default()
        }
    }

    fn start(&self, runtime: &Handle, settings: &NodeSettings) {
        let Some(url) = self.url.lock().take() else { return };
        let (name, status) = (Arc::clone(&self.name), self.status.clone());
        let chroot = url.chroot.clone();
        let session = ZookeeperSession::start(name, url, settings.clone(), status, runtime);
        self.started.get_or_init(|| ZookeeperLocks::new(Znodes::new(session, &chroot, runtime)));
    }

    fn call(&self, op: Op) -> ReplyFuture {
        match self
            .started()
            .and_then(|locks| locks.znodes.session.number().map(|_| Arc::clone(locks)))
        {
            Ok(locks) => ReplyFuture::new(locks.execute(op)),
            Err(reason) => ReplyFuture::ready(Vote::Failed(reason)),
        }
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        match self.started.get() {
            Some(locks) => locks.places.subscribe(spec.name(), notify),
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
        let link = self.started().and_then(|locks| locks.znodes.session.link());
        let mut report = NodeReport::new("zookeeper");
        report.servers =
            link.map_or_else(|_| self.servers.clone(), |link| vec![link.server.clone()]);
        report
    }
}

impl Inspection for ZookeeperNode {
    fn look(&self, spec: &LockSpec) -> LookFuture {
        match self.started() {
            Ok(locks) => Box::pin(Arc::clone(&locks.znodes).look(spec.clone())),
            Err(reason) => Box::pin(ready(Err(reason))),
        }
    }

    fn remove(&self, spec: &LockSpec, holder: HolderId) -> RemovalFuture {
        match self.started() {
            Ok(locks) => Box::pin(Arc::clone(&locks.znodes).remove_holder(spec.clone(), holder)),
            Err(reason) => Box::pin(ready(Err(reason))),
        }
    }
}

impl LossHints for ZookeeperNode {
    fn watch(&self, _: &LockSpec, token: Token, notify: Notify) -> Subscription {
        match self.started() {
            Ok(locks) => locks.watch(token, notify),
            Err(_) => Subscription::new(|| {}),
        }
    }
}

impl Remote for ZookeeperNode {
    fn product(&self) -> Option<&'static str> {
        Some("ZooKeeper")
    }

    fn reconnect(&self, _: &LockSpec) -> Reconnection {
        let locks = self.started.get().cloned();
        Box::pin(async move {
            match locks {
                Some(locks) => locks.znodes.session.reconnect().await,
                None => false,
            }
        })
    }

    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        match self.started.get() {
            Some(locks) => locks.znodes.session.silence(limit),
            None => Silence::Silent(waited),
        }
    }
}

/// Ends the session, and with it the locks. Without a connection, they last until the session timeout is over.
impl Drop for ZookeeperNode {
    fn drop(&mut self) {
        if let Some(locks) = self.started.get() {
            locks.znodes.session.kept.stopped.cancel();
        }
    }
}

impl fmt::Debug for ZookeeperNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperNode")
            .field("name", &self.name)
            .field("status", &self.status.subscribe().get())
            .finish_non_exhaustive()
    }
}
