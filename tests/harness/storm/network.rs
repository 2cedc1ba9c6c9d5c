//! The network links between the clients and the nodes, and their faults.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

use super::keys::keys_in;
use super::minority::CutOff;
use super::{Fault, PASSWORD, USER};
use crate::history::monotonic_nanos;
use crate::proxy::{Connection, Direction, Proxy, Traffic};
use crate::redis_server::RedisServer;

use Direction::{ToClient, ToServer};

/// One link from each client to each node, so that a fault can cut one client off from a node that other
/// clients reach.
#[derive(Debug)]
pub(super) struct Network {
    nodes: usize,
    /// The URLs of nodes that clients reach without a link.
    others: Vec<String>,
    /// All links: those of the first client in the order of the nodes, then those of the second client, and
    /// so on.
    links: Vec<Proxy>,
    /// Held during a fault of the link. On a busy machine a fault may last beyond the beginning of the next one.
    struck: Vec<Mutex<()>>,
    /// Each connection whose requests may have arrived after its end, with the index of its node.
    overtaken: Mutex<Vec<(usize, Connection)>>,
    cut_off: Mutex<Vec<CutOff>>,
}

impl Network {
    pub(super) async fn between(
        clients: usize,
        servers: &[RedisServer],
        others: Vec<String>,
    ) -> Self {
        let links = join_all((0..clients).flat_map(|_| servers.iter().map(Proxy::to))).await;
        Self {
            nodes: servers.len(),
            others,
            struck: links.iter().map(|_| Mutex::default()).collect(),
            links,
            overtaken: Mutex::default(),
            cut_off: Mutex::default(),
        }
    }

    /// Returns the URLs of the nodes for one client, over its links if they have any.
    pub(super) fn urls(&self, client: usize) -> Vec<String> {
        let links = &self.links[client * self.nodes..][..self.nodes];
        let user = format!("redis://{USER}:{PASSWORD}@");
        let links = links.iter().map(|link| link.url().replace("redis://", &user));
        links.chain(self.others.iter().cloned()).collect()
    }

    /// Cuts all clients off from a node while `step` runs: resets their connections, and holds back all data on new ones.
    pub(super) async fn without_clients(&self, node: usize, step: impl Future<Output = ()>) {
        let links = self.links_to(node);
        let _struck = self.wait_for(&links).await;
        self.each(&links, |link| begin(link, Fault::Cut, 0));
        step.await;
        self.each(&links, |link| end(link, Fault::Cut));
    }

    /// Waits until these links have no fault.
    async fn wait_for(&self, links: &[usize]) -> Vec<MutexGuard<'_, ()>> {
        // Always in the same order, so that two faults cannot wait for each other.
        let mut links = links.to_vec();
        links.sort_unstable();
        let mut struck = Vec::new();
        for link in links {
            struck.push(self.struck[link].lock().await);
        }
        struck
    }

    /// Adds `seconds` to the node's replies to `TIME`, for all clients.
    pub(super) fn set_clock_ahead(&self, node: usize, seconds: i64) {
        self.each(&self.links_to(node), |link| link.set_clock_ahead(seconds));
    }

    fn links_to(&self, node: usize) -> Vec<usize> {
        (node..self.links.len()).step_by(self.nodes).collect()
    }

    /// Makes a fault on some links for the time `lasts`, and then undoes it. `choice` selects a variant
    /// of the fault. `isolated` are the clients that cannot reach a quorum meanwhile.
    pub(super) async fn strike(
        &self,
        fault: Fault,
        links: &[usize],
        lasts: Duration,
        choice: u64,
        isolated: Vec<usize>,
    ) {
        let _struck = self.wait_for(links).await;
        if fault == Fault::Overtake {
            return self.overtake(links, lasts).await;
        }
        self.each(links, |link| begin(link, fault, choice));
        let since = monotonic_nanos();
        sleep(lasts).await;
        if fault.cuts_off() {
            let until = monotonic_nanos();
            let cut_off = isolated.into_iter().map(|client| CutOff { client, since, until });
            self.cut_off.lock().await.extend(cut_off);
        }
        self.each(links, |link| end(link, fault));
    }

    fn each(&self, links: &[usize], act: impl Fn(&Proxy)) {
        for &link in links {
            act(&self.links[link]);
        }
    }

    /// Holds back requests, resets their connections, and delivers the requests later, after requests
    /// over the next connections.
    async fn overtake(&self, links: &[usize], lasts: Duration) {
        let connections = || {
            links.iter().flat_map(|&link| {
                let connections = self.links[link].connections().into_iter();
                connections.map(move |connection| (link % self.nodes, connection))
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

    /// Returns the keys with `prefix` in requests that reached a node after their connections had ended.
    /// No client can prevent such keys from staying until their leases end.
    pub(super) async fn overtaken(&self, node: usize, prefix: &str) -> Vec<String> {
        let overtaken = self.overtaken.lock().await;
        let here = overtaken.iter().filter(|(its, _)| *its == node);
        here.flat_map(|(_, connection)| keys_in(&connection.outlived(), prefix)).collect()
    }

    /// Returns all periods in which a client could not reach a quorum.
    pub(super) async fn cut_off(&self) -> Vec<CutOff> {
        self.cut_off.lock().await.clone()
    }
}

fn begin(link: &Proxy, fault: Fault, choice: u64) {
    match fault {
        Fault::Silence => link.set_both(Traffic::Hold),
        Fault::Cut => {
            // Hold the traffic first, so that no new connection escapes the fault.
            link.set_both(Traffic::Hold);
            link.reset();
        }
        Fault::LoseRequests => link.set(ToServer, Traffic::Hold),
        Fault::LoseReplies => link.set(ToClient, Traffic::Hold),
        Fault::Delay => {
            let millis = |from: u64, to: u64| Duration::from_millis(from + choice % (to - from));
            link.set(ToServer, Traffic::Delay(millis(0, 40)));
            link.set(ToClient, Traffic::Delay(millis(20, 140)));
        }
        Fault::Tear => {
            let direction = if choice.is_multiple_of(2) { ToServer } else { ToClient };
            let bytes = usize::try_from(choice / 2 % 400).unwrap_or_default();
            // Only on existing connections. On a new one the reset would hit the handshake, which
            // concerns no lock.
            for connection in link.connections() {
                connection.set(direction, Traffic::ResetAfter(bytes));
            }
        }
        _ => unreachable!("{fault:?} does not strike the network"),
    }
}

fn end(link: &Proxy, fault: Fault) {
    if matches!(fault, Fault::LoseRequests | Fault::LoseReplies) {
        link.reset();
    }
    link.set_both(Traffic::Pass);
}
