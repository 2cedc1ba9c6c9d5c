//! Storms over a quorum of three kinds of nodes: a server, a Sentinel group and a Redis Cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};

use super::client::{Client, Command, Contender};
use super::report::Report;
use super::{OWN_KEYS, Schedule};
use crate::cluster::RedisCluster;
use crate::eventually::eventually;
use crate::history::{History, What, monotonic_nanos};
use crate::redis_server::RedisServer;
use crate::scratch::scratch_in_memory;
use crate::sentinel_group::FailoverGroup;

/// The longest time for a failover, on a machine that is busy with other tests.
const FAILOVER: Duration = Duration::from_secs(30);
/// The longest time until all servers of a Sentinel group follow its master. A sentinel waits for 8 s before it makes a
/// restarted master a replica.
const SETTLED: Duration = Duration::from_secs(90);
const REPLICATION: [&str; 2] = ["INFO", "replication"];
/// The longest time until every client has got a lock.
const START: Duration = Duration::from_secs(30);
/// The time within which a caller that waits gets its lock, if locks are granted at all: two of the nodes may fail over
/// at the same time, one after the other.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a former master may grant locks: `min-replicas-max-lag 1`, and 2 s.
const FAILOVER_MARGIN: Duration = Duration::from_secs(3);
/// The number of servers in half of a cluster. The replica of a server, or its master, is in the other half.
const MASTERS: usize = 3;
const CLIENTS: usize = 4;

/// A storm over a server, a Sentinel group and a Redis Cluster, which are the nodes of one quorum.
#[derive(Debug, Clone)]
pub struct MixedStorm {
    /// The `contender` program.
    pub program: PathBuf,
    /// The seed of the faults and of the clients.
    pub seed: u64,
    /// The duration of the faults.
    pub time: Duration,
    /// Whether every client has the restart guard.
    pub restart_guard: bool,
}

/// A fault of one node.
#[derive(Debug, Clone, Copy)]
enum NodeFault {
    RestartServer,
    FreezeServer,
    DisconnectServer,
    FlushServer,
    KillMaster,
    FreezeMaster,
    FailOver,
    KillSentinel,
    DisconnectMaster,
    KillShard,
    FreezeShard,
    FailOverShard,
    MoveSlot,
}

impl NodeFault {
    const OF_SERVER: [Self; 4] =
        [Self::RestartServer, Self::FreezeServer, Self::DisconnectServer, Self::FlushServer];
    const OF_GROUP: [Self; 5] = [
        Self::KillMaster,
        Self::FreezeMaster,
        Self::FailOver,
        Self::KillSentinel,
        Self::DisconnectMaster,
    ];
    const OF_CLUSTER: [Self; 4] =
        [Self::KillShard, Self::FreezeShard, Self::FailOverShard, Self::MoveSlot];
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RestartServer => "server: restart without data, at once",
            Self::FreezeServer => "server: SIGSTOP",
            Self::DisconnectServer => "server: CLIENT KILL",
            Self::FlushServer => "server: SCRIPT FLUSH",
            Self::KillMaster => "Sentinel group: SIGKILL of the master",
            Self::FreezeMaster => "Sentinel group: SIGSTOP of the master",
            Self::FailOver => "Sentinel group: SENTINEL FAILOVER",
            Self::KillSentinel => "Sentinel group: SIGKILL of a sentinel",
            Self::DisconnectMaster => "Sentinel group: CLIENT KILL at the master",
            Self::KillShard => "cluster: SIGKILL of a master",
            Self::FreezeShard => "cluster: SIGSTOP of a master",
            Self::FailOverShard => "cluster: CLUSTER FAILOVER FORCE",
            Self::MoveSlot => "cluster: a slot moves",
        })
    }
}

impl MixedStorm {
    /// Starts the servers and the clients, makes the faults, ends the clients, and checks the history.
    ///
    /// # Panics
    ///
    /// If a server or a client cannot be started, or a fault cannot be made.
    pub async fn rage(self) -> Report {
        let Self { program, seed, time, restart_guard } = self;
        let dir = scratch_in_memory();
        let history = History::at(dir.path().join("history"));
        let replicated = |options: crate::RedisOptions| {
            options.directive("min-replicas-to-write", "1").directive("min-replicas-max-lag", "1")
        };
        let server = RedisServer::start().await;
        let group = FailoverGroup::options()
            .directive("min-replicas-to-write", "1")
            .directive("min-replicas-max-lag", "1")
            .start()
            .await;
        let cluster = RedisCluster::start_with(&replicated(RedisServer::options()), 1).await;
        let urls = [server.url(), group.url(), cluster.url()];
        let command = Command {
            program,
            client: Client::Honest,
            restart_guard,
            failover_margin: restart_guard.then_some(FAILOVER_MARGIN),
            has_sets: false,
            patience: PATIENCE,
            server_urls: vec![server.url()],
            history: history.clone(),
        };
        let mut seeds = StdRng::seed_from_u64(seed);
        let mut clients: Vec<_> =
            (0..CLIENTS).map(|_| command.start(seeds.random(), &urls)).collect();
        wait_for_grants(&history, CLIENTS).await;

        let until = Instant::now() + time;
        let mut nodes = [Node::Server(server), Node::Group(group), Node::Cluster(cluster)];
        let strikes = nodes.iter_mut().map(|node| {
            let choices = StdRng::seed_from_u64(seeds.random());
            node.strike_until(until, choices, &history)
        });
        let strikes = join_all(strikes.collect::<Vec<_>>());
        let choices = StdRng::seed_from_u64(seeds.random());
        let of_clients = strike_clients(&mut clients, &command, &urls, until, choices);
        let (_, killed) = tokio::join!(strikes, of_clients);
        let ended = join_all(clients.into_iter().map(Contender::finish)).await;
        let mut failures: Vec<String> = ended.into_iter().filter_map(Result::err).collect();
        for node in &nodes {
            failures.extend(node.leftovers(&killed).await);
        }
        drop(nodes);
        let events = history.events().expect("a history");
        let (nodes, strikes) = (urls.len(), Vec::new());
        let schedule = Schedule { seed, nodes, clients: CLIENTS, restart_guard, strikes };
        Report::new(&schedule, Client::Honest, &events, &killed, failures)
    }
}

/// A node and its servers.
#[derive(Debug)]
enum Node {
    Server(RedisServer),
    Group(FailoverGroup),
    Cluster(RedisCluster),
}

impl Node {
    /// Makes faults, one after another, with pauses in which the node votes again.
    async fn strike_until(&mut self, until: Instant, mut choices: StdRng, history: &History) {
        let (faults, pause) = match self {
            Self::Server(_) => (&NodeFault::OF_SERVER[..], 300..1500),
            Self::Group(_) => (&NodeFault::OF_GROUP[..], 500..5000),
            Self::Cluster(_) => (&NodeFault::OF_CLUSTER[..], 500..5000),
        };
        while Instant::now() < until {
            let fault = *faults.choose(&mut choices).expect("a fault");
            let since = monotonic_nanos();
            match self {
                Self::Server(server) => strike_server(server, fault, &mut choices).await,
                Self::Group(group) => strike_group(group, fault, &mut choices).await,
                Self::Cluster(cluster) => strike_cluster(cluster, fault, &mut choices).await,
            }
            let name = fault.to_string();
            history.note(What::Fault { since, name }).expect("a line in the history");
            sleep(Duration::from_millis(choices.random_range(pause.clone()))).await;
        }
    }
}

impl Node {
    /// Returns a violation for each key that must not exist any more. A failover can bring back keys whose release the
    /// former master has confirmed, so on groups every lock only needs a deadline.
    async fn leftovers(&self, killed: &BTreeSet<u32>) -> Vec<String> {
        let masters = match self {
            Self::Server(server) => vec![server],
            Self::Group(group) => vec![&group.servers[group.master().await]],
            Self::Cluster(cluster) => {
                let mut masters = Vec::new();
                for pair in 0..MASTERS {
                    masters.push(&cluster.servers()[master_of(cluster, pair).await]);
                }
                masters
            }
        };
        let mut found = Vec::new();
        for server in masters {
            let mut probe = server.probe().await;
            for key in probe.keys().await {
                let left: i64 = probe.command(["PTTL", &key]).await;
                let owner = key.strip_prefix(OWN_KEYS).and_then(|own| own.split(':').next());
                let is_left = match owner.and_then(|owner| owner.parse().ok()) {
                    Some(owner) if matches!(self, Self::Server(_)) => !killed.contains(&owner),
                    _ => left == -1 && !key.contains("redlock:fencing:"),
                };
                // -2: the key has ended meanwhile.
                if is_left && left != -2 {
                    found.push(format!("left behind on {}: {key} for {left} ms", server.port()));
                }
            }
        }
        found
    }
}

/// Waits for a short time, in which a fault lasts.
async fn last(choices: &mut StdRng) {
    sleep(Duration::from_millis(choices.random_range(10..900))).await;
}

async fn disconnect(server: &RedisServer) {
    let words = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    server.probe().await.command::<i64>(words).await;
}

async fn strike_server(server: &mut RedisServer, fault: NodeFault, choices: &mut StdRng) {
    match fault {
        NodeFault::RestartServer => {
            server.kill();
            server.restart().await;
        }
        NodeFault::FreezeServer => {
            server.freeze();
            last(choices).await;
            server.thaw();
        }
        NodeFault::FlushServer => {
            server.probe().await.command::<()>(["SCRIPT", "FLUSH"]).await;
        }
        _ => disconnect(server).await,
    }
}

async fn strike_group(group: &mut FailoverGroup, fault: NodeFault, choices: &mut StdRng) {
    let master = group.master().await;
    match fault {
        NodeFault::KillMaster => {
            group.servers[master].kill();
            group.promoted_after(master).await;
            group.servers[master].restart().await;
        }
        NodeFault::FreezeMaster => {
            group.servers[master].freeze();
            group.promoted_after(master).await;
            last(choices).await;
            group.servers[master].thaw();
        }
        NodeFault::FailOver => {
            group.fail_over().await;
        }
        NodeFault::KillSentinel => {
            let sentinel = choices.random_range(0..group.sentinels.len());
            group.sentinels[sentinel].kill();
            last(choices).await;
            group.sentinels[sentinel].restart().await;
        }
        _ => disconnect(&group.servers[master]).await,
    }
    eventually("all servers follow the master", SETTLED, async || {
        let master = group.master().await;
        let port = format!("master_port:{}\r", group.servers[master].port());
        for (index, server) in group.servers.iter().enumerate() {
            let info: String = server.probe().await.try_command(REPLICATION).await.ok()?;
            if index != master && !(info.contains("master_link_status:up") && info.contains(&port))
            {
                return None;
            }
        }
        Some(())
    })
    .await;
}

async fn strike_cluster(cluster: &mut RedisCluster, fault: NodeFault, choices: &mut StdRng) {
    if let NodeFault::MoveSlot = fault {
        let key = format!("hot:{}", choices.random_range(0..4));
        let (slot, from) = (cluster.slot(&key).await, cluster.owner(&key).await);
        let to = master_of(cluster, (from + 1) % MASTERS).await;
        cluster.begin_move(slot, from, to).await;
        last(choices).await;
        return cluster.finish_move(slot, from, to).await;
    }
    let master = master_of(cluster, choices.random_range(0..MASTERS)).await;
    let replica = (master + MASTERS) % (2 * MASTERS);
    match fault {
        NodeFault::KillShard => {
            cluster.servers_mut()[master].kill();
            becomes_master(cluster, replica).await;
            cluster.servers_mut()[master].restart().await;
        }
        NodeFault::FreezeShard => {
            cluster.servers_mut()[master].freeze();
            becomes_master(cluster, replica).await;
            last(choices).await;
            cluster.servers_mut()[master].thaw();
        }
        _ => {
            cluster.probe(replica).await.command::<()>(["CLUSTER", "FAILOVER", "FORCE"]).await;
            becomes_master(cluster, replica).await;
        }
    }
    eventually("the former master replicates the new one", FAILOVER, async || {
        let info = replication(cluster, master).await;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
    cluster.become_complete().await;
}

async fn replication(cluster: &RedisCluster, server: usize) -> String {
    cluster.probe(server).await.command(REPLICATION).await
}

/// Returns the master of a pair: this server, or the one with this number in the other half.
async fn master_of(cluster: &RedisCluster, pair: usize) -> usize {
    let info = replication(cluster, pair).await;
    if info.contains("role:master") { pair } else { pair + MASTERS }
}

async fn becomes_master(cluster: &RedisCluster, replica: usize) {
    eventually("the replica is promoted", FAILOVER, async || {
        let info = replication(cluster, replica).await;
        info.contains("role:master").then_some(())
    })
    .await;
}

/// Stops and kills clients. Returns the ids of the killed ones.
async fn strike_clients(
    clients: &mut [Contender],
    command: &Command,
    urls: &[String],
    until: Instant,
    mut choices: StdRng,
) -> BTreeSet<u32> {
    let mut killed = BTreeSet::new();
    while Instant::now() < until {
        let client = &mut clients[choices.random_range(0..CLIENTS)];
        if choices.random() {
            client.stop();
            last(&mut choices).await;
            client.resume();
        } else {
            killed.insert(client.id());
            let next = command.start(choices.random(), urls);
            std::mem::replace(client, next).kill();
        }
        sleep(Duration::from_millis(choices.random_range(500..3000))).await;
    }
    killed
}

async fn wait_for_grants(history: &History, clients: usize) {
    eventually("every client has got a lock", START, async || {
        let events = history.events().ok()?;
        let granted = events.iter().filter(|event| matches!(event.what, What::Granted { .. }));
        let processes: BTreeSet<u32> = granted.map(|event| event.process).collect();
        (processes.len() == clients).then_some(())
    })
    .await;
}
