//! A node that is a Redis Cluster.
//!
//! All servers of a cluster together have one vote. Each lock lies in one of 16,384 slots, and each slot belongs to one
//! master. The node has one [`RedisNode`] for each master, a *shard*, with its own connection, supervisor and
//! quarantine. It sends an operation to the shard that owns the slot of the lock.
//!
//! * [`slot_map`]: which shard owns which slot.
//! * [`shards`]: makes and drops the shards, and keeps the map.
//! * [`topology`]: reads the slots from the reply of a server.
//! * [`refresh`]: keeps the map and the status up to date in the background.
//! * [`redirect`]: the replies `MOVED` and `ASK` of a server that does not serve the slot.
//! * [`route`]: sends an operation, and follows redirects.
//! * [`pending_ops`]: the shards that may still execute an operation, which a release must follow.
//! * [`subscriptions`]: subscriptions on the owners of the slots.
//! * [`generation`]: recognizes promoted masters.
//! * [`take_over`]: the quarantine of a master that gets a slot of a master in quarantine.

pub(super) mod generation;
#[cfg(test)]
mod order_tests;
mod pending_ops;
#[cfg(test)]
mod played_cluster;
mod redirect;
mod refresh;
mod route;
mod shards;
mod slot_map;
mod subscriptions;
mod take_over;
mod topology;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::RedisNode;
use super::fencing::slot;
use crate::error::{InvalidOption, NodeError, Vote};
use crate::key::LockKey;
use crate::lock::LockSpec;
use crate::node::{
    Action, Capabilities, Node, NodeStatus, Notify, Op, ProcessId, QueueFuture, QueueOp,
    ReplyFuture, Silence, StatusReceiver, StatusSender, Subscription,
};
use pending_ops::PendingShardOps;
pub(crate) use shards::ShardSettings;
use shards::Shards;
use subscriptions::{ChannelKind, ShardSubscriptions};

/// A node that is a Redis Cluster.
///
/// It is up while at least one of its masters is connected: the locks in the slots of the other masters fail, and
/// all other locks work.
pub(crate) struct ClusterNode {
    cluster: Arc<Cluster>,
    /// Cancelled when the node is dropped, which ends the refresher.
    dropped: CancellationToken,
    _cancel_on_drop: DropGuard,
}

/// The state that a [`ClusterNode`], its operations and its refresher share.
struct Cluster {
    name: Arc<str>,
    shards: Shards,
    pending_ops: PendingShardOps,
    subscriptions: Arc<ShardSubscriptions>,
    status: StatusSender,
    /// The reason why no server has named the owners of the slots yet.
    problem: Mutex<NodeError>,
}

impl ClusterNode {
    pub(crate) fn new(settings: ShardSettings) -> Arc<Self> {
        let dropped = CancellationToken::new();
        let shards = Shards::new(settings);
        let cluster = Arc::new(Cluster {
            name: Arc::clone(shards.membership.name()),
            shards,
            pending_ops: PendingShardOps::default(),
            subscriptions: Arc::default(),
            status: StatusSender::new(NodeStatus::Connecting),
            problem: Mutex::new(NodeError::NotConnected("not connected yet".into())),
        });
        Arc::new(Self { cluster, _cancel_on_drop: dropped.clone().drop_guard(), dropped })
    }
}

impl Cluster {
    /// Returns the shard that owns the slot of a lock.
    fn owner(&self, name: &str) -> Result<Arc<RedisNode>, NodeError> {
        let slot = slot(name);
        self.shards.owner(slot).ok_or_else(|| {
            self.shards.request_refresh();
            if self.shards.is_known() {
                NodeError::NotConnected(format!("no master owns slot {slot}").into())
            } else {
                self.problem.lock().clone()
            }
        })
    }
}

impl ClusterNode {
    /// Keeps the map of the slots up to date, and the masters connected, until the node is dropped.
    pub(crate) fn start(&self, runtime: &Handle) {
        self.cluster.shards.start(runtime);
        let refresh = refresh::keep_up_to_date(Arc::downgrade(&self.cluster));
        runtime.spawn(self.dropped.clone().run_until_cancelled_owned(refresh));
    }
}

impl Node for ClusterNode {
    fn name(&self) -> &Arc<str> {
        &self.cluster.name
    }

    fn capabilities(&self) -> Capabilities {
        let defaults = Capabilities::default();
        Capabilities { shared: true, several_keys: true, fair: true, ..defaults }
    }

    /// A script may use keys of one slot only.
    fn check_keys(&self, keys: &[LockKey]) -> Result<(), InvalidOption> {
        let Some((first, rest)) = keys.split_first() else { return Ok(()) };
        let other = rest.iter().find(|other| slot(other.name()) != slot(first.name()));
        other.map_or(Ok(()), |other| {
            let allowed = format!(
                "in one slot of the Redis Cluster {}; a common hash tag puts them there, as in {{tag}}:{first} and \
                 {{tag}}:{other}, or in the prefix of the manager",
                self.cluster.name
            );
            Err(InvalidOption::new("keys", format!("{first:?} and {other:?}"), allowed))
        })
    }

    fn call(&self, op: Op) -> ReplyFuture {
        if let Action::Release { .. } = op.action {
            return ReplyFuture::new(route::release(Arc::clone(&self.cluster), op));
        }
        match self.cluster.owner(op.spec.name()) {
            Ok(shard) => route::send(&self.cluster, shard, op),
            Err(reason) => ReplyFuture::ready(Vote::Failed(reason)),
        }
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        self.cluster.subscribe(spec, ChannelKind::Releases(notify))
    }

    fn request_turn(&self, spec: &LockSpec) -> Subscription {
        self.cluster.subscribe(spec, ChannelKind::Turn)
    }

    fn queue(&self, op: QueueOp) -> QueueFuture {
        Box::pin(route::queue(Arc::clone(&self.cluster), op))
    }

    fn subscribe_queue(&self, spec: &LockSpec, process: ProcessId, notify: Notify) -> Subscription {
        self.cluster.subscribe(spec, ChannelKind::Queue(process, notify))
    }

    fn status(&self) -> StatusReceiver {
        self.cluster.status.subscribe()
    }

    /// A caller waits for one master, and this method does not know for which. So the node is silent for a caller that
    /// has waited for `limit` while any master owes a reply and is silent. The operations on a master whose connection
    /// is down have failed, or fail at their next poll.
    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        let rest = limit.saturating_sub(waited);
        let mut again = limit;
        let is_down = |shard: &RedisNode| {
            shard.connection().is_err() && !matches!(shard.status().get(), NodeStatus::Connecting)
        };
        for shard in self.cluster.shards.all().into_iter().filter(|shard| !is_down(shard)) {
            match shard.silence(limit, waited) {
                Silence::Silent(time) if rest.is_zero() => return Silence::Silent(time),
                Silence::Silent(_) => again = again.min(rest),
                Silence::CheckAgainAfter(time) => again = again.min(time),
            }
        }
        Silence::CheckAgainAfter(again)
    }
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterNode")
            .field("name", &self.cluster.name)
            .field("masters", &self.cluster.shards.masters().len())
            .finish_non_exhaustive()
    }
}
