//! Which server owns which slot.
//!
//! All servers of a node together have one vote. A node of one server has one entry for ever, and that of a Sentinel group
//! is replaced when the sentinels name another master. In a Redis Cluster each lock lies in one of 16,384 slots, and each
//! slot belongs to one master.
//!
//! A resolver keeps the map up to date: the sentinels, or [`cluster`], which reads the slots.

mod cluster;
#[cfg(test)]
#[cfg(feature = "unstable-simulation")]
mod former_tests;
#[cfg(test)]
mod status_tests;
#[cfg(test)]
mod take_over_tests;
mod topology;

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::fencing::slot;
use super::link::open::Endpoint;
use super::sentinel::SentinelGroup;
use super::server::connection::Connection;
use super::server::promotions::Promotions;
use super::server::{Observer, Promoted, Role, Server, ServerSettings};
use super::url::{RedisUrl, Servers};
use crate::error::{NodeError, legible};
use crate::log_limited;
use crate::node::{NodeReport, NodeStatus, StatusSender};
use crate::store::kit::gate::Closures;
use crate::store::kit::url::HostPort;

use topology::Masters;

/// How long a server without slots stays connected after its last use. A server without slots takes part in a
/// cluster while slots move to it.
const UNUSED: Duration = Duration::from_secs(60);

/// The highest number of servers. A server could otherwise make the node connect to more and more of them by redirects.
const MAX_SERVERS: usize = 64;

/// The servers of a node.
pub(super) struct Map {
    pub(super) settings: Arc<ServerSettings>,
    url: RedisUrl,
    owners: ArcSwap<Owners>,
    /// The members of a cluster.
    servers: Mutex<HashMap<HostPort, KnownServer>>,
    /// Earlier members of the cluster. Operations without a certain result may still use them.
    former: Mutex<Vec<Weak<Server>>>,
    promotions: Arc<Promotions>,
    /// The reason why there is no owner.
    problem: Mutex<NodeError>,
    /// Notified when the slots should be read again.
    refresh: Notify,
    /// The status of the node. The mutex is held while the status is computed and sent.
    status: Mutex<StatusSender>,
    observer: Weak<dyn Observer>,
    runtime: Handle,
}

/// The slots with their owners. A later entry replaces an earlier one. If one server owns everything, there is one slot.
/// Empty until the owners are known.
type Owners = Vec<(RangeInclusive<usize>, Arc<Server>)>;

struct KnownServer {
    server: Arc<Server>,
    /// When the server was last used or owned slots.
    used: Instant,
}

/// A reply that names another server. The server that sent it has not executed the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirect {
    slot: u16,
    /// The host is empty if it is that of the server that sent the reply.
    target: HostPort,
    /// Whether the slot is still moving, so that the command must follow `ASKING`. Otherwise it belongs to the other server.
    pub(super) is_asking: bool,
}

impl Map {
    pub(super) fn new(
        url: RedisUrl,
        settings: ServerSettings,
        status: StatusSender,
        observer: Weak<dyn Observer>,
        runtime: &Handle,
    ) -> Self {
        Self {
            settings: Arc::new(settings),
            url,
            owners: ArcSwap::default(),
            servers: Mutex::default(),
            former: Mutex::default(),
            promotions: Arc::default(),
            problem: Mutex::new(NodeError::NotConnected("not connected yet".into())),
            refresh: Notify::new(),
            status: Mutex::new(status),
            observer,
            runtime: runtime.clone(),
        }
    }

    /// Finds the servers, and keeps them connected. Returns the task that keeps the map up to date; `None` for a single
    /// server, whose endpoint is `endpoint`.
    pub(super) fn start(
        self: &Arc<Self>,
        endpoint: Option<Endpoint>,
    ) -> Option<AbortOnDropHandle<()>> {
        let resolver = if let Some(endpoint) = endpoint {
            let server = self.new_server(endpoint, Role::Alone, None);
            self.owners.store(Arc::new(vec![(0..=0, Arc::clone(&server))]));
            server.start(&self.runtime);
            return None;
        } else if let Servers::Sentinel { sentinels, service, login } = &self.url.servers {
            let group = SentinelGroup::new(&self.url, sentinels, service, login, &self.settings);
            let (group, map) = (Arc::new(group), Arc::clone(self));
            self.runtime.spawn(async move {
                tokio::join!(group.watch(), map.follow_sentinels(Arc::clone(&group)));
            })
        } else {
            self.runtime.spawn(cluster::keep_up_to_date(Arc::clone(self)))
        };
        Some(AbortOnDropHandle::new(resolver))
    }

    /// Keeps the map at the master that the sentinels name. Never completes.
    pub(super) async fn follow_sentinels(self: Arc<Self>, group: Arc<SentinelGroup>) {
        let mut choice = group.choice();
        loop {
            let chosen = choice.borrow_and_update().clone();
            if let Some(master) = &chosen.master {
                let endpoint = Endpoint::of(&self.url, &master.address);
                let present = self.owner_of(0);
                let present = present.filter(|server| server.endpoint.name() == endpoint.name());
                let is_new = present.is_none();
                let server = present.unwrap_or_else(|| self.promote(master, endpoint));
                server.set_promotion(master);
                let dispute = chosen.check_dispute().err();
                server.gate.dispute(dispute.filter(|_| self.settings.node.restart_guard.is_some()));
                if is_new {
                    server.start(&self.runtime);
                    self.changed();
                }
            } else if chosen.is_complete() {
                let (node, reason) = (&self.settings.voter, chosen.failure());
                log_limited!(
                    self.settings.log_limit, "no-master", node, warn, %node, %reason,
                    "a node is down: the sentinels name no master"
                );
                *self.problem.lock() = reason;
                self.changed();
            }
            // The group lives as long as this future.
            let _ = choice.changed().await;
        }
    }

    /// Replaces the master of a Sentinel group.
    fn promote(&self, master: &Promoted, endpoint: Endpoint) -> Arc<Server> {
        let former = self.owner_of(0);
        let plural = if master.announced_by.len() == 1 { "" } else { "s" };
        let sentinels = format!("sentinel{plural} {}", master.announced_by.join(", "));
        let role = Role::Master(Mutex::new(master.clone()));
        let server = self.new_server(endpoint.announced_by(sentinels), role, former.as_deref());
        self.owners.store(Arc::new(vec![(0..=0, Arc::clone(&server))]));
        *self.problem.lock() = NodeError::NotConnected("not connected yet".into());
        // Grants that are on their way count no more.
        if let Some(former) = former {
            former.stop();
        }
        server
    }

    /// Adds the servers to the description of the node: one server, the master of a Sentinel group, or each master of a cluster
    /// with its slots.
    pub(super) fn describe(&self, report: &mut NodeReport) {
        // There are 16,384 slots.
        let slot = |slot: usize| u16::try_from(slot).unwrap_or_default();
        for (slots, server) in self.owners.load().iter() {
            let slots = self.is_cluster().then(|| slot(*slots.start())..=slot(*slots.end()));
            let mut known = report.servers.iter_mut();
            if let Some(known) = known.find(|known| *known.address == **server.name()) {
                known.slots.extend(slots);
                continue;
            }
            let mut described = server.describe(&mut report.findings);
            described.slots.extend(slots);
            report.servers.push(described);
            report.round_trip = report.round_trip.max(server.round_trip());
            if report.quarantine.is_none() {
                report.quarantine = server.gate.check_grants().err();
            }
        }
    }

    /// Returns whether the URL is that of a cluster. Only there may a server redirect operations: another server could lead the
    /// password elsewhere.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.url.servers, Servers::Cluster { .. })
    }

    /// Returns whether an owner of a slot has an address that another server has announced.
    pub(super) fn has_announced_server(&self) -> bool {
        self.owners.load().iter().any(|(_, owner)| owner.endpoint.is_announced())
    }

    /// Returns the server that owns a slot.
    pub(super) fn owner_of(&self, slot: usize) -> Option<Arc<Server>> {
        owner_in(&self.owners.load(), slot).cloned()
    }

    /// Returns the connection to the owner of a slot.
    pub(super) fn connection(&self, slot: usize) -> Option<Arc<Connection>> {
        self.owner_of(slot)?.connection().ok()
    }

    /// Returns the slot of a lock.
    pub(super) fn slot(&self, name: &str) -> usize {
        if self.is_cluster() { slot(name) } else { 0 }
    }

    /// Returns the server that owns the slot of a lock.
    pub(super) fn owner(&self, name: &str) -> Result<Arc<Server>, NodeError> {
        let slot = self.slot(name);
        self.owner_of(slot).ok_or_else(|| {
            self.request_refresh();
            if self.owners.load().is_empty() {
                self.problem.lock().clone()
            } else {
                NodeError::NotConnected(format!("no master owns slot {slot}").into())
            }
        })
    }

    /// Returns the servers that own slots, each once.
    pub(super) fn masters(&self) -> Vec<Arc<Server>> {
        let mut masters: Vec<Arc<Server>> = Vec::new();
        for (_, owner) in &**self.owners.load() {
            if !masters.iter().any(|master| Arc::ptr_eq(master, owner)) {
                masters.push(Arc::clone(owner));
            }
        }
        masters
    }

    /// Returns all servers: the owners of slots, and present and earlier members of a cluster that may have an operation.
    pub(super) fn all(&self) -> Vec<Arc<Server>> {
        if !self.is_cluster() {
            return self.masters();
        }
        let mut all: Vec<_> =
            self.servers.lock().values().map(|known| Arc::clone(&known.server)).collect();
        all.extend(self.former.lock().iter().filter_map(Weak::upgrade));
        all
    }

    /// Returns the redirect of a server of a cluster. Other failures may show that the slots should be read again.
    pub(super) fn redirect(&self, error: &RedisError) -> Option<Redirect> {
        if !self.is_cluster() {
            return None;
        }
        let redirect = Redirect::of(error);
        let is_down = error.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown);
        if redirect.is_none() && (is_down || error.is_io_error()) {
            self.request_refresh();
        }
        redirect
    }

    /// Returns the server to which an operation is redirected. After `MOVED` that server owns the slot, and the slots are
    /// read again, because others may have moved too. Returns `None` if there are too many servers.
    pub(super) fn follow(&self, redirect: &Redirect, from: &Arc<Server>) -> Option<Arc<Server>> {
        let mut servers = self.servers.lock();
        let mut target = redirect.target.clone();
        if target.host.is_empty() {
            from.host().clone_into(&mut target.host);
        }
        let server = self.server_at(&mut servers, &target)?;
        if !redirect.is_asking {
            let (slot, before) = (usize::from(redirect.slot), self.owners.load_full());
            if self.take_over(&before, slot, &server) {
                let mut owners = Owners::clone(&before);
                // Servers that disagree about the slot until the next reading must not make the list longer and longer.
                owners.retain(|(slots, _)| *slots != (slot..=slot));
                owners.push((slot..=slot, Arc::clone(&server)));
                self.owners.store(Arc::new(owners));
                drop(servers);
                self.changed();
            }
            self.request_refresh();
        }
        Some(server)
    }

    /// Replaces the owners of the slots. Drops the servers that own no slots and were not used for a while.
    pub(super) fn replace(&self, masters: &Masters) {
        let (mut servers, before) = (self.servers.lock(), self.owners.load_full());
        let mut former = self.former.lock();
        former.retain(|server| server.strong_count() > 0);
        servers.retain(|address, known| {
            let owns_slots = masters.iter().any(|(_, owner)| owner == address);
            let owned_slots = before.iter().any(|(_, owner)| Arc::ptr_eq(owner, &known.server));
            // A master that has lost its slots may be a replica now. If it is promoted later, a new connection shows
            // that, see `promotions`.
            let stays = owns_slots || !owned_slots && known.used.elapsed() < UNUSED;
            if !stays {
                former.push(Arc::downgrade(&known.server));
            }
            stays
        });
        drop(former);
        let owners = masters.iter().filter_map(|(slots, address)| {
            Some((slots.clone(), self.server_at(&mut servers, address)?))
        });
        let owners: Owners = owners.collect();
        // Owners change only at the borders of the entries.
        let entries = before.iter().chain(&owners);
        let borders: BTreeSet<usize> =
            entries.flat_map(|(slots, _)| [*slots.start(), slots.end() + 1]).collect();
        for slot in borders {
            if let Some(owner) = owner_in(&owners, slot) {
                self.take_over(&before, slot, owner);
            }
        }
        self.owners.store(Arc::new(owners));
        drop(servers);
        self.changed();
    }

    /// Prepares the new owner of a slot, before it gets operations.
    ///
    /// A master with a closed gate may have forgotten a lock that is held. If its slot moves to another master, that master
    /// does not know the lock either. So the closures go with the slot: the new owner grants no locks, in none of its slots,
    /// until the gate of the former owner would have opened.
    ///
    /// If this node is not connected to the former owner, it does not know whether that server has forgotten locks, or
    /// whether a replica was promoted in between and has handed the slot on. Then the new owner is treated like a master
    /// that was promoted now.
    ///
    /// Returns whether the owner has changed.
    fn take_over(&self, before: &Owners, slot: usize, owner: &Arc<Server>) -> bool {
        let former = owner_in(before, slot);
        if former.is_some_and(|former| Arc::ptr_eq(former, owner)) {
            return false;
        }
        // The first owners of the slots that this node meets have no former owners that it knows.
        let Some(longest_lease) = self.settings.node.restart_guard.filter(|_| !before.is_empty())
        else {
            return true;
        };
        let closures = if let Some(former) = former
            && former.responsive_connection().is_ok()
        {
            former.gate.closures()
        } else {
            let margin = self.settings.node.failover_margin;
            let margin = margin.unwrap_or_else(|| self.promotions.longest_margin());
            Closures::after_promotion(longest_lease, margin, Instant::now())
        };
        owner.gate.close(closures);
        if let Err(reason) = closures.check_grants() {
            log_limited!(
                self.settings.log_limit, "take-over", owner.name(), warn,
                node = %owner.name(), %reason,
                "a master got a slot of a master that may have forgotten held locks, and is quarantined"
            );
        }
        true
    }

    /// Returns the server of a cluster with this address. Makes it if it is new, unless there are too many.
    fn server_at(
        &self,
        servers: &mut HashMap<HostPort, KnownServer>,
        address: &HostPort,
    ) -> Option<Arc<Server>> {
        let used = Instant::now();
        if let Some(known) = servers.get_mut(address) {
            known.used = used;
            return Some(Arc::clone(&known.server));
        }
        if servers.len() >= MAX_SERVERS {
            let node = &self.settings.voter;
            log_limited!(
                self.settings.log_limit, "servers", node, warn, %node, server = %address,
                "a cluster may have at most {MAX_SERVERS} masters; another one is not used"
            );
            return None;
        }
        let endpoint = Endpoint::of(&self.url, address).announced_by("the cluster");
        let role = Role::Member(Arc::clone(&self.promotions));
        let server = self.new_server(endpoint, role, None);
        server.start(&self.runtime);
        let known = KnownServer { server: Arc::clone(&server), used };
        servers.insert(address.clone(), known);
        Some(server)
    }

    fn new_server(&self, endpoint: Endpoint, role: Role, former: Option<&Server>) -> Arc<Server> {
        let observer = Weak::clone(&self.observer);
        Server::new(endpoint, role, &self.settings, former, observer)
    }

    /// Requests that the slots are read again soon.
    pub(super) fn request_refresh(&self) {
        self.refresh.notify_one();
    }

    /// Reports that an owner has changed.
    fn changed(&self) {
        if let Some(observer) = self.observer.upgrade() {
            observer.status_changed(false);
        }
    }

    /// Publishes the status of the node. The node is up while at least one master is connected: the locks in the slots of
    /// the other masters fail. At first the status waits until each master was reached, or has failed.
    pub(super) fn publish_status(&self) {
        let sender = self.status.lock();
        let masters = self.masters();
        let before = sender.subscribe().get();
        let is_first = matches!(before, NodeStatus::Connecting);
        let statuses = masters.iter().map(|server| server.status().get());
        let statuses = statuses.filter(|status| is_first || *status != NodeStatus::Connecting);
        let status = statuses.min_by_key(|status| match status {
            NodeStatus::Down(NodeError::SameServer(_)) => 0,
            NodeStatus::Connecting => 1,
            NodeStatus::Up => 2,
            NodeStatus::Down(_) => 3,
        });
        let status = status.unwrap_or_else(|| NodeStatus::Down(self.problem.lock().clone()));
        if status.is_up() && is_first {
            self.promotions.record_start();
        }
        if status != before {
            sender.send(status);
        }
    }
}

fn owner_in(owners: &Owners, slot: usize) -> Option<&Arc<Server>> {
    let entry = owners.iter().rev().find(|(slots, _)| slots.contains(&slot));
    entry.map(|(_, owner)| owner)
}

impl Redirect {
    /// Reads the error of a server: `MOVED 3999 127.0.0.1:6381` or `ASK 3999 127.0.0.1:6381`.
    fn of(error: &RedisError) -> Option<Self> {
        let is_asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
        let (address, slot) = error.redirect_node()?;
        let (host, port) = address.rsplit_once(':')?;
        // Redis does not put an IPv6 address into brackets. "?" stands for a name that the operator has not set.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = if host == "?" { "" } else { host }.to_owned();
        // The address is logged.
        let target = HostPort { host: legible(&host), port: port.parse().ok()? };
        Some(Self { slot, target, is_asking })
    }
}

#[cfg(test)]
impl Map {
    /// Makes the server of this URL the only one, without connecting to it.
    pub(super) fn insert_one(&self, url: &str) {
        let endpoint = Endpoint::parse(url);
        let server = self.new_server(endpoint, Role::Alone, None);
        self.owners.store(Arc::new(vec![(0..=0, server)]));
    }

    /// Makes a server the owner of a slot, as after `MOVED`.
    pub(super) fn insert_owner(&self, slot: usize, address: &str) -> Arc<Server> {
        let (host, port) = address.split_once(':').unwrap();
        let target = HostPort { host: host.to_owned(), port: port.parse().unwrap() };
        let slot = u16::try_from(slot).unwrap();
        let redirect = Redirect { slot, target, is_asking: false };
        let endpoint = Endpoint::parse("redis://localhost");
        let from = self.new_server(endpoint, Role::Alone, None);
        self.follow(&redirect, &from).unwrap()
    }

    pub(super) async fn refresh_requested(&self) {
        self.refresh.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::store::redis::played_node::PlayedCluster;

    fn redirect(message: &str) -> Option<(bool, u16, String, u16)> {
        let reply = bb8_redis::redis::parse_redis_value(format!("-{message}\r\n").as_bytes());
        let error = reply.unwrap().extract_error().unwrap_err();
        let Redirect { is_asking, slot, target } = Redirect::of(&error)?;
        Some((is_asking, slot, target.host, target.port))
    }

    /// The list of the owners must not grow until the slots are read.
    #[tokio::test(start_paused = true)]
    async fn a_slot_that_moves_back_and_forth_has_one_entry() {
        let cluster = PlayedCluster::new();
        for address in ["b:2", "a:1"].repeat(10) {
            let owner = cluster.state.map.insert_owner(cluster.slot, address);
            assert!(Arc::ptr_eq(&cluster.state.map.owner_of(cluster.slot).unwrap(), &owner));
        }
        assert_eq!(cluster.state.map.owners.load().len(), 1);
    }

    /// A slot may move for a long time, and its operations go to a server without slots meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_server_without_slots_stays_for_a_minute_after_its_last_use() {
        let cluster = PlayedCluster::new();
        let (map, slot) = (&cluster.state.map, u16::try_from(cluster.slot).unwrap());
        let address = |host: &str, port| HostPort { host: host.to_owned(), port };
        let target = address("c", 3);
        let ask = Redirect { slot, target: target.clone(), is_asking: true };
        let is_known_after = async |time| {
            advance(time).await;
            map.replace(&vec![(0..=16_383, address("a", 1))]);
            map.servers.lock().contains_key(&target)
        };
        for _ in 0..3 {
            map.follow(&ask, &cluster.master(0)).unwrap();
            assert!(is_known_after(UNUSED * 3 / 4).await);
        }
        assert!(!is_known_after(UNUSED).await);
    }

    #[test]
    fn redirects_name_a_slot_and_a_server() {
        for (message, is_asking, slot, host, port) in [
            ("MOVED 3999 127.0.0.1:6381", false, 3999, "127.0.0.1", 6381),
            ("ASK 0 cache.local:7000", true, 0, "cache.local", 7000),
            ("MOVED 16383 ::1:6381", false, 16_383, "::1", 6381),
            ("MOVED 1 [2001:db8::1]:6381", false, 1, "2001:db8::1", 6381),
            ("MOVED 1 :6381", false, 1, "", 6381),
            ("MOVED 1 ?:6381", false, 1, "", 6381),
        ] {
            let expected = (is_asking, slot, host.to_owned(), port);
            assert_eq!(redirect(message), Some(expected), "{message}");
        }
        for message in ["MOVED", "MOVED x y", "MOVED 1 host", "TRYAGAIN Multiple keys", "ASKING"] {
            assert_eq!(redirect(message), None, "{message}");
        }
    }
}
