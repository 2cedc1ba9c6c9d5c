//! The ways between the clients and the nodes, and what happens on them.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::keys::keys_in;
use super::minority::CutOff;
use super::{Fault, PASSWORD, USER};
use crate::history::monotonic_nanos;
use crate::proxy::{Connection, Direction, Proxy, Traffic};
use crate::redis_server::RedisServer;

use Direction::{ToClient, ToServer};

/// A way of its own from each client to each node, so that one client can be cut off from a node
/// that another one reaches.
#[derive(Debug)]
pub(super) struct Network {
    nodes: usize,
    /// First those of the first client.
    ways: Vec<Proxy>,
    /// What clients said over these may have arrived after their end, by node.
    overtaken: Mutex<Vec<(usize, Connection)>>,
    cut_off: Mutex<Vec<CutOff>>,
}

impl Network {
    pub(super) async fn between(clients: usize, servers: &[RedisServer]) -> Self {
        let ways = (0..clients).flat_map(|_| servers.iter().map(Proxy::to));
        Self {
            nodes: servers.len(),
            ways: join_all(ways).await,
            overtaken: Mutex::default(),
            cut_off: Mutex::default(),
        }
    }

    /// How a client reaches the nodes.
    pub(super) fn urls(&self, client: usize) -> Vec<String> {
        let ways = &self.ways[client * self.nodes..][..self.nodes];
        let user = format!("redis://{USER}:{PASSWORD}@");
        ways.iter().map(|way| way.url().replace("redis://", &user)).collect()
    }

    /// Keeps everybody from a node: connections are reset, and new ones lead nowhere.
    pub(super) fn shut_off(&self, node: usize) {
        self.each(&self.ways_to(node), |way| begin(way, Fault::Cut, 0));
    }

    /// Ends [`shut_off`](Self::shut_off).
    pub(super) fn let_in(&self, node: usize) {
        self.each(&self.ways_to(node), |way| end(way, Fault::Cut));
    }

    /// Sets what a node tells everybody of its wall clock.
    pub(super) fn set_clock_ahead(&self, node: usize, seconds: i64) {
        self.each(&self.ways_to(node), |way| way.set_clock_ahead(seconds));
    }

    fn ways_to(&self, node: usize) -> Vec<usize> {
        (node..self.ways.len()).step_by(self.nodes).collect()
    }

    /// Makes a fault on some ways, for so long, and puts everything in order again. `choice` decides
    /// what the fault leaves open; `isolated` are the clients that it keeps from a quorum.
    pub(super) async fn strike(
        &self,
        fault: Fault,
        ways: &[usize],
        lasts: Duration,
        choice: u64,
        isolated: Vec<usize>,
    ) {
        if fault == Fault::Overtake {
            return self.overtake(ways, lasts).await;
        }
        self.each(ways, |way| begin(way, fault, choice));
        let since = monotonic_nanos();
        sleep(lasts).await;
        if fault.cuts_off() {
            let until = monotonic_nanos();
            let cut_off = isolated.into_iter().map(|client| CutOff { client, since, until });
            self.cut_off.lock().await.extend(cut_off);
        }
        self.each(ways, |way| end(way, fault));
    }

    fn each(&self, ways: &[usize], act: impl Fn(&Proxy)) {
        for &way in ways {
            act(&self.ways[way]);
        }
    }

    /// What is held back outlives its connection: it arrives after what is said over the next one.
    async fn overtake(&self, ways: &[usize], lasts: Duration) {
        let connections = || {
            ways.iter().flat_map(|&way| {
                let connections = self.ways[way].connections().into_iter();
                connections.map(move |connection| (way % self.nodes, connection))
            })
        };
        let held: Vec<(usize, Connection)> = connections().collect();
        for (_, connection) in &held {
            connection.set(ToServer, Traffic::Hold);
        }
        sleep(lasts / 2).await;
        for (_, connection) in &held {
            connection.reset_client();
        }
        sleep(lasts / 2).await;
        for (_, connection) in &held {
            connection.set(ToServer, Traffic::Pass);
        }
        self.overtaken.lock().await.extend(held);
    }

    /// The keys beginning with `prefix` in what has reached a node after its connection had ended.
    /// Nobody can help it if they stay there until their leases are over.
    pub(super) async fn overtaken(&self, node: usize, prefix: &str) -> Vec<String> {
        let overtaken = self.overtaken.lock().await;
        let here = overtaken.iter().filter(|(its, _)| *its == node);
        here.flat_map(|(_, connection)| keys_in(&connection.outlived(), prefix)).collect()
    }

    /// When which clients could not reach a quorum.
    pub(super) async fn cut_off(&self) -> Vec<CutOff> {
        self.cut_off.lock().await.clone()
    }
}

fn begin(way: &Proxy, fault: Fault, choice: u64) {
    match fault {
        Fault::Silence => way.set_both(Traffic::Hold),
        Fault::Cut => {
            // New ones first, so that none slips through.
            way.set_both(Traffic::Hold);
            way.reset();
        }
        Fault::LoseRequests => way.set(ToServer, Traffic::Hold),
        Fault::LoseReplies => way.set(ToClient, Traffic::Hold),
        Fault::Delay => {
            let millis = |from: u64, to: u64| Duration::from_millis(from + choice % (to - from));
            way.set(ToServer, Traffic::Delay(millis(0, 40)));
            way.set(ToClient, Traffic::Delay(millis(20, 140)));
        }
        Fault::Tear => {
            let direction = if choice.is_multiple_of(2) { ToServer } else { ToClient };
            let bytes = usize::try_from(choice / 2 % 400).unwrap_or_default();
            // Not new ones: a greeting that is torn costs nobody a lock.
            for connection in way.connections() {
                connection.set(direction, Traffic::ResetAfter(bytes));
            }
        }
        _ => unreachable!("{fault} does not strike the network"),
    }
}

fn end(way: &Proxy, fault: Fault) {
    if matches!(fault, Fault::LoseRequests | Fault::LoseReplies) {
        way.reset();
    }
    way.set_both(Traffic::Pass);
}
