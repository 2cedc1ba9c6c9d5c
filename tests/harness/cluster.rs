//! A real Redis Cluster.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;

use crate::eventually::eventually;
use crate::probe::Probe;
use crate::proxy::Proxy;
use crate::redis_server::{RedisOptions, RedisServer};
use crate::servers::Servers;

/// The longest time for a change of the cluster, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(120);
/// The number of masters.
const MASTERS: usize = 3;
const SLOTS: usize = 16_384;
/// After this time, in milliseconds, a master that does not answer counts as failed.
const NODE_TIMEOUT: &str = "2500";
/// The same for a cluster without replicas: a server that waits for a processor must not make the cluster refuse commands.
/// A cluster with this timeout forms slowly.
const LONG_NODE_TIMEOUT: &str = "20000";

/// A cluster of three masters, with or without a replica each.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Servers,
}

impl RedisCluster {
    /// Starts three masters that share the slots.
    ///
    /// # Panics
    ///
    /// If the cluster cannot be made.
    pub async fn start() -> Self {
        Self::start_with(&RedisServer::options(), 0).await
    }

    /// Starts three masters with one replica each. The first three servers are the masters.
    ///
    /// # Panics
    ///
    /// If the cluster cannot be made.
    pub async fn start_with_replicas() -> Self {
        Self::start_with(&RedisServer::options(), 1).await
    }

    /// Starts three masters with these options and so many replicas each.
    ///
    /// # Panics
    ///
    /// If the cluster cannot be made.
    pub async fn start_with(options: &RedisOptions, replicas: usize) -> Self {
        let mut options = options
            .clone()
            .directive("cluster-enabled", "yes")
            .directive("cluster-node-timeout", NODE_TIMEOUT)
            // A replica may be promoted although it has not talked to its master for long.
            .directive("cluster-replica-validity-factor", "0")
            .directive("repl-diskless-sync-delay", "0");
        if options.has_tls() {
            // The members talk to each other by TLS too, and report their ports for TLS.
            options = options.directive("tls-cluster", "yes").directive("tls-replication", "yes");
        }
        let count = MASTERS * (1 + replicas);
        let servers = join_all((0..count).map(|_| options.clone().start_member())).await;
        let cluster = Self { servers: servers.into() };
        cluster.form(replicas).await;
        cluster
    }

    /// Starts three masters that clients reach through a [`Proxy`] each: the servers name the ports of the proxies.
    ///
    /// # Panics
    ///
    /// If the cluster cannot be made.
    pub async fn start_proxied() -> (Self, Vec<Proxy>) {
        let cluster = Self::start().await;
        let proxies = join_all(cluster.servers.iter().map(Proxy::to)).await;
        for (server, proxy) in cluster.servers.iter().zip(&proxies) {
            let port = proxy.port().to_string();
            let announce = ["CONFIG", "SET", "cluster-announce-port", &port];
            server.probe().await.command::<()>(announce).await;
        }
        eventually("each server names the proxies", SOON, async || {
            for server in cluster.servers.iter() {
                let nodes: String = server.probe().await.command(["CLUSTER", "NODES"]).await;
                let is_named = |proxy: &Proxy| nodes.contains(&format!(":{}@", proxy.port()));
                proxies.iter().all(is_named).then_some(())?;
            }
            Some(())
        })
        .await;
        (cluster, proxies)
    }

    async fn form(&self, replicas: usize) {
        let mut probes = join_all(self.servers.iter().map(RedisServer::probe)).await;
        for (number, probe) in probes.iter_mut().enumerate() {
            probe.command::<()>(["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]).await;
            if number < MASTERS {
                let (first, last) = (SLOTS * number / MASTERS, SLOTS * (number + 1) / MASTERS);
                let slots: Vec<String> = (first..last).map(|slot| slot.to_string()).collect();
                let words = ["CLUSTER", "ADDSLOTS"].into_iter();
                let words: Vec<&str> = words.chain(slots.iter().map(String::as_str)).collect();
                probe.command::<()>(words).await;
            }
        }
        for server in &self.servers[1..] {
            let port = server.member_port().to_string();
            probes[0].command::<()>(["CLUSTER", "MEET", "127.0.0.1", &port]).await;
        }
        let count = self.servers.len();
        eventually("every server knows every other server", SOON, async || {
            for server in self.servers.iter() {
                let nodes: String = server.probe().await.command(["CLUSTER", "NODES"]).await;
                let known = nodes.lines().filter(|line| !line.contains("handshake")).count();
                if known < count {
                    return None;
                }
            }
            Some(())
        })
        .await;
        for replica in MASTERS..MASTERS * (1 + replicas) {
            self.replicate(replica, replica % MASTERS).await;
        }
        self.become_complete().await;
        if replicas == 0 {
            for probe in &mut probes {
                let words = ["CONFIG", "SET", "cluster-node-timeout", LONG_NODE_TIMEOUT];
                probe.command::<()>(words).await;
            }
        }
    }

    /// Makes a server a replica of a master, by their numbers.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub async fn replicate(&self, replica: usize, master: usize) {
        let id = self.id(master).await;
        self.probe(replica).await.command::<()>(["CLUSTER", "REPLICATE", &id]).await;
        self.become_replica(replica).await;
    }

    /// Waits until a server is a replica that has the data of its master.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub async fn become_replica(&self, replica: usize) {
        eventually("the replica is in sync", SOON, async || {
            let info: String = self.probe(replica).await.command(["INFO", "replication"]).await;
            info.contains("master_link_status:up").then_some(())
        })
        .await;
    }

    /// Waits until all servers that are up see a complete cluster with the same owners of the slots, and the same
    /// distinct epochs of these owners.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub async fn become_complete(&self) {
        eventually("the cluster is complete", SOON, async || {
            let mut views = Vec::new();
            for server in self.servers.iter().filter(|server| server.is_up()) {
                let mut probe = server.probe().await;
                let info: String = probe.command(["CLUSTER", "INFO"]).await;
                if !info.contains("cluster_state:ok") {
                    return None;
                }
                let nodes: String = probe.command(["CLUSTER", "NODES"]).await;
                views.push(owners(&nodes));
            }
            let epochs: HashSet<_> = views[0].iter().map(|owner| &owner.epoch).collect();
            let are_distinct = epochs.len() == views[0].len();
            (are_distinct && views.iter().all(|view| *view == views[0])).then_some(())
        })
        .await;
    }

    /// Returns the URL, with the addresses of all servers.
    pub fn url(&self) -> String {
        url(self.servers.iter().map(RedisServer::port))
    }

    /// Returns the URL, with the addresses of [proxies](Self::start_proxied).
    pub fn url_by(proxies: &[Proxy]) -> String {
        url(proxies.iter().map(Proxy::port))
    }

    /// Returns the servers: first the masters, then their replicas.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Returns the servers: first the masters, then their replicas.
    pub fn servers_mut(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// Connects a [`Probe`] to a server.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn probe(&self, server: usize) -> Probe {
        self.servers[server].probe().await
    }

    /// Returns the id of a server in the cluster.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn id(&self, server: usize) -> String {
        self.probe(server).await.command(["CLUSTER", "MYID"]).await
    }

    /// Returns the slot of a key.
    ///
    /// # Panics
    ///
    /// If no server answers.
    pub async fn slot(&self, key: &str) -> u16 {
        let server = self.servers.iter().position(RedisServer::is_up).expect("a server that is up");
        self.probe(server).await.command(["CLUSTER", "KEYSLOT", key]).await
    }

    /// Returns the number of the server that owns the slot of a key, as the servers see it.
    ///
    /// # Panics
    ///
    /// If no server owns the slot.
    pub async fn owner(&self, key: &str) -> usize {
        let slot = self.slot(key).await;
        for (number, server) in self.servers.iter().enumerate() {
            if !server.is_up() {
                continue;
            }
            let nodes: String = server.probe().await.command(["CLUSTER", "NODES"]).await;
            if owners(&nodes).iter().any(|owner| {
                let is_line = |line: &str| line.starts_with(&owner.id) && line.contains("myself");
                nodes.lines().any(is_line)
                    && owner.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
            }) {
                return number;
            }
        }
        panic!("no server owns slot {slot}");
    }

    /// Returns a key whose slot belongs to this master at the start.
    pub async fn key_on(&self, master: usize, name: &str) -> String {
        for number in 0.. {
            let key = format!("{name}-{number}");
            if usize::from(self.slot(&key).await) * MASTERS / SLOTS == master {
                return key;
            }
        }
        unreachable!("every master has keys")
    }

    /// Begins to move a slot: until [`finish_move`](Self::finish_move), a key that the first server does not have belongs
    /// to the second.
    ///
    /// # Panics
    ///
    /// If a server refuses.
    pub async fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (self.id(from).await, self.id(to).await);
        let slot = slot.to_string();
        self.set_slot(to, &slot, &["IMPORTING", &source]).await;
        self.set_slot(from, &slot, &["MIGRATING", &target]).await;
    }

    /// Changes the state of a slot at a server. The server may not know the last owner of the slot yet.
    async fn set_slot(&self, server: usize, slot: &str, state: &[&str]) {
        let words = [&["CLUSTER", "SETSLOT", slot], state].concat();
        eventually("the server accepts the state of the slot", SOON, async || {
            self.probe(server).await.try_command::<()>(&words).await.ok()
        })
        .await;
    }

    /// Moves the keys of a slot, and then the slot itself. Waits until all servers know the new owner.
    ///
    /// A server that gets a slot takes the next epoch. If it did not know the epoch of the last move, two servers would
    /// have the same one. The servers would then disagree about the owner, and one of them would delete its keys of
    /// the slot.
    ///
    /// # Panics
    ///
    /// If a server refuses.
    pub async fn finish_move(&self, slot: u16, from: usize, to: usize) {
        let target = self.id(to).await;
        let (port, number) = (self.servers[to].port().to_string(), slot.to_string());
        let mut source = self.probe(from).await;
        loop {
            let keys: Vec<String> =
                source.command(["CLUSTER", "GETKEYSINSLOT", &number, "100"]).await;
            if keys.is_empty() {
                break;
            }
            for key in keys {
                // The key may run out meanwhile, and then there is nothing to move.
                let moved = ["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"];
                source.command::<String>(moved).await;
            }
        }
        for server in [to, from] {
            self.set_slot(server, &number, &["NODE", &target]).await;
        }
        // The other masters hear of the move at once, so that the servers do not disagree about the owner. After a
        // failover, one of these servers may be a replica, which refuses the command.
        for server in (0..MASTERS).filter(|server| ![to, from].contains(server)) {
            let words = ["CLUSTER", "SETSLOT", &number, "NODE", &target];
            let _ = self.probe(server).await.try_command::<()>(words).await;
        }
        self.become_complete().await;
    }

    /// Returns all keys of all servers that are up, as `port/key`. Replicas have the keys of their masters.
    ///
    /// # Panics
    ///
    /// If one of these servers does not answer.
    pub async fn keys(&self) -> Vec<String> {
        let mut all = Vec::new();
        for server in self.servers.iter().filter(|server| server.is_up()) {
            let mut probe = server.probe().await;
            let info: String = probe.command(["INFO", "replication"]).await;
            if info.contains("role:master") {
                let keys = probe.keys().await;
                all.extend(keys.into_iter().map(|key| format!("{}/{key}", server.port())));
            }
        }
        all
    }

    /// Returns the remaining time to live of a key on the owner of its slot.
    ///
    /// # Panics
    ///
    /// If the owner does not answer.
    pub async fn time_to_live(&self, key: &str) -> Option<Duration> {
        let owner = self.owner(key).await;
        self.probe(owner).await.time_to_live(key).await
    }
}

fn url(ports: impl Iterator<Item = u16>) -> String {
    let hosts: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis-cluster://{}", hosts.join(","))
}

/// A server that owns slots.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SlotOwner {
    id: String,
    /// The epoch of its configuration. Of two servers that claim a slot, the one with the higher epoch owns it.
    epoch: String,
    /// The first and the last slot of each range.
    slots: Vec<(u16, u16)>,
}

/// Reads the owners of the slots from the reply to `CLUSTER NODES`.
fn owners(nodes: &str) -> Vec<SlotOwner> {
    let mut owners: Vec<SlotOwner> = nodes
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let (id, epoch) = (words.first()?, words.get(6)?);
            let slots = words.iter().skip(8).filter(|word| !word.starts_with('['));
            let slots: Vec<_> = slots
                .filter_map(|range| {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    Some((first.parse().ok()?, last.parse().ok()?))
                })
                .collect();
            let owner = SlotOwner { id: (*id).to_owned(), epoch: (*epoch).to_owned(), slots };
            (!owner.slots.is_empty()).then_some(owner)
        })
        .collect();
    owners.sort();
    owners
}
