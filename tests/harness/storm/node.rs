//! A node of a storm, the state that strikes leave on it, and the check for leftover keys.

use std::any::Any;
use std::collections::BTreeSet;
use std::time::Duration;

use redlock_core::test_util::node_tests::{StoreFault, TestStore};
use tokio::time::sleep;

use super::clock::{STEP, lengthen_leases, shorten_leases};
use super::mixed::{masters, strike_cluster, strike_group};
use super::network::Network;
use super::strike::strike_server;
use super::{Fault, LONGEST_LEASE, OWN_KEYS};
use crate::cluster::RedisCluster;
use crate::postgres::PostgresServer;
use crate::redis_server::RedisServer;
use crate::sentinel_group::FailoverGroup;

/// How long the mark of a waiting writer stays without being renewed.
const MARK: Duration = Duration::from_secs(1);
/// How long a process that waits fairly is present without a sign of life.
const PRESENCE: Duration = Duration::from_secs(3);

/// The servers of a node.
#[derive(Debug)]
pub(super) enum Servers {
    One(RedisServer),
    Group(FailoverGroup),
    Cluster(RedisCluster),
    /// Any store that can have the faults of [`StoreFault`].
    Store(Box<dyn TestStore>),
}

/// A node, and the state that earlier strikes have left on it.
#[derive(Debug)]
pub(super) struct Node {
    index: usize,
    servers: Servers,
    clock_ahead: i64,
    /// How much longer leases may last on this node, after steps of its clock.
    lengthened: Duration,
    /// Keys that may exist again although they were released, because the node has lost their release.
    came_back: Vec<String>,
}

/// Makes a fault that every store can have. A PostgreSQL server that is killed may lose the last releases.
async fn strike_store(
    store: &mut dyn TestStore,
    fault: Fault,
    lasts: Duration,
    came_back: &mut Vec<String>,
) {
    let (begin, end) = match fault {
        Fault::Freeze => (StoreFault::Freeze, StoreFault::Thaw),
        Fault::RestartWithData => (StoreFault::Kill, StoreFault::Restart),
        _ => unreachable!("{fault:?} does not strike every store"),
    };
    assert!(store.fault(begin).await, "the store cannot {begin:?}");
    sleep(lasts).await;
    store.fault(end).await;
    let store: &dyn Any = store;
    if let (Some(server), Fault::RestartWithData) = (store.downcast_ref(), fault) {
        // A contended lock ends with its lease.
        let held = PostgresServer::held_locks(server).await.into_iter();
        came_back.extend(held.filter(|name| name.starts_with(OWN_KEYS)));
    }
}

impl Node {
    pub(super) fn new(index: usize, servers: Servers) -> Self {
        let (clock_ahead, lengthened) = (0, Duration::ZERO);
        Self { index, servers, clock_ahead, lengthened, came_back: Vec::new() }
    }

    /// Makes a fault, and returns violations by the clients.
    pub(super) async fn strike(
        &mut self,
        network: &Network,
        fault: Fault,
        lasts: Duration,
        choice: u64,
    ) -> Vec<String> {
        let number = usize::try_from(choice >> 1).unwrap_or_default();
        match &mut self.servers {
            Servers::Group(group) => strike_group(group, fault, lasts, number).await,
            Servers::Cluster(cluster) => strike_cluster(cluster, fault, lasts, number).await,
            Servers::Store(store) => {
                strike_store(&mut **store, fault, lasts, &mut self.came_back).await;
            }
            Servers::One(server) => match fault {
                Fault::StepForward => {
                    self.clock_ahead += STEP.as_secs().cast_signed();
                    // All clients are cut off during the step. Otherwise votes between the step and the clients' next
                    // reading of the clock would count, and no promise covers those.
                    let step = async {
                        sleep(lasts / 2).await;
                        network.set_clock_ahead(self.index, self.clock_ahead);
                        shorten_leases(server, STEP).await;
                        sleep(lasts / 2).await;
                    };
                    network.without_clients(self.index, step).await;
                }
                Fault::StepBack => {
                    self.clock_ahead -= STEP.as_secs().cast_signed();
                    network.set_clock_ahead(self.index, self.clock_ahead);
                    lengthen_leases(server, STEP).await;
                    self.lengthened += STEP;
                }
                _ => return strike_server(server, fault, lasts, choice, &mut self.came_back).await,
            },
        }
        Vec::new()
    }

    /// Removes keys that no client can be blamed for: keys set by requests that arrived after the end of
    /// their connections, and keys whose release the server has lost. Their leases are too long to wait
    /// for.
    pub(super) async fn remove_excused_keys(&self, network: &Network) {
        let server = match &self.servers {
            Servers::One(server) => server,
            Servers::Store(store) => {
                for name in &self.came_back {
                    store.delete(name).await;
                }
                return;
            }
            Servers::Group(_) | Servers::Cluster(_) => return,
        };
        let overtaken = network.overtaken(self.index, OWN_KEYS).await;
        let mut probe = server.probe().await;
        for key in overtaken.iter().chain(&self.came_back) {
            // A key without a deadline stays, so that the check for leftovers finds it.
            if probe.command::<i64>(["PTTL", key]).await > 0 {
                probe.command::<()>(["DEL", key]).await;
            }
        }
    }

    /// Returns a violation for each key that must not exist any more. Keys of clients in `killed` may exist,
    /// because these clients could not clean up. Contended keys may exist until they end: of a killed client, kept on
    /// purpose, or on a node that has missed a command while it was silent. A failover can bring back keys whose release
    /// the former master has confirmed.
    pub(super) async fn leftovers(&self, killed: &BTreeSet<u32>) -> Vec<String> {
        let servers = match &self.servers {
            Servers::One(server) => vec![server],
            Servers::Group(group) => vec![&group.servers[group.master().await]],
            Servers::Cluster(cluster) => masters(cluster).await,
            Servers::Store(store) => {
                // A lock that a client kept on purpose ends with its lease.
                sleep(LONGEST_LEASE).await;
                let left = store.locks().await;
                let violation = format!("left behind on store {}: {left} locks", self.index);
                return (left > 0).then_some(violation).into_iter().collect();
            }
        };
        let fails_over = !matches!(self.servers, Servers::One(_));
        let mut found = Vec::new();
        for server in servers {
            let mut probe = server.probe().await;
            for key in probe.keys().await {
                let left: i64 = probe.command(["PTTL", &key]).await;
                let kind: String = probe.command(["TYPE", &key]).await;
                // A sorted set has the entries of shared holders and of waiting writers, or the tickets and the
                // presences of a fair queue.
                let content: Vec<String> = match kind.as_str() {
                    "zset" => probe.command(["ZRANGE", &key, "0", "-1"]).await,
                    _ => vec![kind],
                };
                let longest = if key.starts_with("redlock:fair") {
                    PRESENCE
                } else if content.iter().any(|entry| entry.starts_with("w:")) {
                    MARK
                } else {
                    LONGEST_LEASE
                };
                let longest = (longest + self.lengthened).as_millis();
                let owner =
                    key.strip_prefix(OWN_KEYS).and_then(|own| own.split(':').next()?.parse().ok());
                let excused = match owner {
                    None if key.starts_with("redlock:fencing:") => true,
                    Some(owner) => killed.contains(&owner) || fails_over && left >= 0,
                    None => u128::try_from(left).is_ok_and(|left| left <= longest),
                };
                if left != -2 && !excused {
                    let port = server.port();
                    found.push(format!("left behind on {port}: {key} for {left} ms: {content:?}"));
                }
            }
        }
        found
    }
}
