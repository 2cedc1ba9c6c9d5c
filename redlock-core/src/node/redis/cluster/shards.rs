//! Makes and drops the shards of a cluster, and keeps the map of its slots.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::generation::ClusterMembership;
use super::redirect::Redirect;
use super::slot_map::SlotMap;
use super::take_over::take_over;
use super::topology::Topology;
use crate::node::redis::url::{HostPort, RedisUrl, Servers};
use crate::node::redis::{Endpoint, NodeSettings, RedisNode, Route};

/// How long a shard without slots stays connected after its last use. A server without slots takes part in the
/// cluster while slots move to it.
const UNUSED: Duration = Duration::from_secs(60);

/// The settings of a cluster node, with which it makes its shards.
pub(crate) struct ShardSettings {
    pub(crate) url: RedisUrl,
    pub(crate) node: NodeSettings,
    /// The time between two readings of the slots.
    pub(crate) refresh: Duration,
}

impl ShardSettings {
    /// Returns the servers of the URL.
    pub(super) fn seeds(&self) -> &[HostPort] {
        match &self.url.servers {
            Servers::Cluster { seeds } => seeds,
            _ => &[],
        }
    }

    /// Returns the endpoint of a server.
    pub(super) fn endpoint(&self, server: &HostPort) -> Endpoint {
        Endpoint::of(&self.url, server)
    }

    fn shard(&self, server: &HostPort, membership: &Arc<ClusterMembership>) -> Arc<RedisNode> {
        let route = Route::Shard(Box::new(self.endpoint(server)), Arc::clone(membership));
        RedisNode::new(route, self.node.clone())
    }
}

/// The shards of a cluster.
pub(super) struct Shards {
    pub(super) settings: ShardSettings,
    pub(super) membership: Arc<ClusterMembership>,
    map: ArcSwap<SlotMap>,
    state: Mutex<ShardsState>,
    /// Notified when the slots should be read again.
    refresh: Notify,
    /// Notified when the owner of a slot has changed.
    changed: Notify,
}

#[derive(Default)]
struct ShardsState {
    by_server: HashMap<HostPort, KnownShard>,
    /// The runtime of the supervisors.
    runtime: Option<Handle>,
    /// Whether a server has named the owners of the slots.
    is_known: bool,
}

struct KnownShard {
    shard: Arc<RedisNode>,
    /// When the shard was last used or owned slots.
    used: Instant,
}

impl Shards {
    pub(super) fn new(settings: ShardSettings) -> Self {
        let membership = ClusterMembership::new(settings.url.name().into());
        Self {
            settings,
            membership,
            map: ArcSwap::default(),
            state: Mutex::default(),
            refresh: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// Connects the shards in this runtime.
    pub(super) fn start(&self, runtime: &Handle) {
        let mut state = self.state.lock();
        state.runtime = Some(runtime.clone());
        for known in state.by_server.values() {
            known.shard.start(runtime);
        }
    }

    /// Returns the shard that owns a slot.
    pub(super) fn owner(&self, slot: usize) -> Option<Arc<RedisNode>> {
        self.map.load().owner(slot).map(Arc::clone)
    }

    /// Returns the shards that own slots.
    pub(super) fn masters(&self) -> Vec<Arc<RedisNode>> {
        self.map.load().shards().to_vec()
    }

    /// Returns all shards.
    pub(super) fn all(&self) -> Vec<Arc<RedisNode>> {
        self.state.lock().by_server.values().map(|known| Arc::clone(&known.shard)).collect()
    }

    /// Returns the addresses of all shards.
    pub(super) fn servers(&self) -> Vec<(HostPort, Arc<RedisNode>)> {
        let state = self.state.lock();
        let known = state.by_server.iter();
        known.map(|(server, known)| (server.clone(), Arc::clone(&known.shard))).collect()
    }

    /// Returns whether a server has named the owners of the slots.
    pub(super) fn is_known(&self) -> bool {
        self.state.lock().is_known
    }

    /// Returns the shard to which a server redirects an operation. After `MOVED` that shard owns the slot, and the
    /// slots are read again, because others may have moved too.
    pub(super) fn follow(&self, redirect: &Redirect, from: Option<&RedisNode>) -> Arc<RedisNode> {
        let mut state = self.state.lock();
        let mut target = redirect.target.clone();
        if target.host.is_empty()
            && let Some(from) = from
        {
            let mut known = state.by_server.iter();
            let from = known.find(|(_, known)| std::ptr::eq(Arc::as_ptr(&known.shard), from));
            target.host = from.map_or_else(String::new, |(server, _)| server.host.clone());
        }
        let shard = self.shard(&mut state, &target);
        if redirect.kind == super::redirect::RedirectKind::Moved {
            let map = self.map.load();
            let slot = redirect.slot;
            let former = map.owner(usize::from(slot));
            if !former.is_some_and(|former| Arc::ptr_eq(former, &shard)) {
                self.take_over(&state, former, &shard);
                let mut map = SlotMap::clone(&map);
                map.set(slot..=slot, Arc::clone(&shard));
                self.map.store(Arc::new(map));
                self.changed.notify_one();
            }
            self.refresh.notify_one();
        }
        shard
    }

    /// Replaces the map. Drops the shards that own no slots and were not used for a while.
    pub(super) fn replace(&self, topology: &Topology) {
        let mut state = self.state.lock();
        let masters = topology.masters.iter();
        let ranges: Vec<_> = masters
            .map(|(slots, server)| (slots.clone(), self.shard(&mut state, server)))
            .collect();
        let now = Instant::now();
        let (before, map) = (self.map.load_full(), SlotMap::of(ranges));
        state.by_server.retain(|_, known| {
            // A master that has lost its slots may be a replica now. If it is promoted later, a new connection shows
            // that, see `generation`.
            let has_lost_slots = before.has(&known.shard) && !map.has(&known.shard);
            !has_lost_slots && now.duration_since(known.used) < UNUSED
        });
        for (former, owner) in map.changes_since(&before) {
            self.take_over(&state, former, owner);
        }
        state.is_known = true;
        self.map.store(Arc::new(map));
        drop(state);
        self.changed.notify_one();
    }

    /// Prepares the new owner of a slot, before it gets operations.
    fn take_over(&self, state: &ShardsState, former: Option<&Arc<RedisNode>>, owner: &RedisNode) {
        // The first owners of the slots that this node meets have no former owners that it knows.
        if former.is_some() || state.is_known {
            take_over(&self.membership, former, owner);
        }
    }

    /// Returns the shard of a server. Makes it if it is new.
    fn shard(&self, state: &mut ShardsState, server: &HostPort) -> Arc<RedisNode> {
        let used = Instant::now();
        if let Some(known) = state.by_server.get_mut(server) {
            known.used = used;
            return Arc::clone(&known.shard);
        }
        let shard = self.settings.shard(server, &self.membership);
        if let Some(runtime) = &state.runtime {
            shard.start(runtime);
        }
        let known = KnownShard { shard: Arc::clone(&shard), used };
        state.by_server.insert(server.clone(), known);
        shard
    }

    /// Requests that the slots are read again soon.
    pub(super) fn request_refresh(&self) {
        self.refresh.notify_one();
    }

    /// Waits until the slots should be read again.
    pub(super) async fn refresh_requested(&self) {
        self.refresh.notified().await;
    }

    /// Waits until the owner of a slot has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
