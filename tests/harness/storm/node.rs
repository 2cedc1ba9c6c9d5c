//! A node of a storm, the state that strikes leave on it, and the check for leftover keys.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;

use super::clock::{BACK, FORWARD, lengthen_leases, shorten_leases};
use super::network::Network;
use super::strike::strike_node;
use super::{Fault, LONGEST_LEASE, OWN_KEYS};
use crate::redis_server::RedisServer;

/// How long the mark of a waiting writer stays without being renewed.
const MARK: Duration = Duration::from_secs(1);
/// How long a process that waits fairly is present without a sign of life.
const PRESENCE: Duration = Duration::from_secs(3);

/// A server, and the state that earlier strikes have left on it.
#[derive(Debug)]
pub(super) struct Node {
    index: usize,
    server: RedisServer,
    clock_ahead: i64,
    /// How much longer leases may last on this node, after steps of its clock.
    lengthened: Duration,
    /// Keys that may exist again although they were released, because the node has lost their release.
    came_back: Vec<String>,
}

impl Node {
    pub(super) fn new(index: usize, server: RedisServer) -> Self {
        let (clock_ahead, lengthened) = (0, Duration::ZERO);
        Self { index, server, clock_ahead, lengthened, came_back: Vec::new() }
    }

    /// Makes a fault, and returns violations by the clients.
    pub(super) async fn strike(
        &mut self,
        network: &Network,
        fault: Fault,
        lasts: Duration,
        choice: u64,
    ) -> Vec<String> {
        match fault {
            Fault::StepForward => self.step_forward(network, lasts).await,
            Fault::StepBack => {
                self.clock_ahead -= BACK.as_secs().cast_signed();
                network.set_clock_ahead(self.index, self.clock_ahead);
                lengthen_leases(&self.server, BACK).await;
                self.lengthened += BACK;
            }
            _ => {
                let aftermath = strike_node(&mut self.server, fault, lasts, choice).await;
                self.came_back.extend(aftermath.came_back);
                return aftermath.violations;
            }
        }
        Vec::new()
    }

    /// Steps the clock while all clients are cut off. Otherwise votes between the step and the clients' next
    /// reading of the clock would count, and no promise covers those.
    async fn step_forward(&mut self, network: &Network, lasts: Duration) {
        network.shut_off(self.index);
        sleep(lasts / 2).await;
        self.clock_ahead += FORWARD.as_secs().cast_signed();
        network.set_clock_ahead(self.index, self.clock_ahead);
        shorten_leases(&self.server, FORWARD).await;
        sleep(lasts / 2).await;
        network.let_in(self.index);
    }

    /// Removes keys that no client can be blamed for: keys set by requests that arrived after the end of
    /// their connections, and keys whose release the server has lost. Their leases are too long to wait
    /// for.
    pub(super) async fn remove_excused_keys(&self, network: &Network) {
        let overtaken = network.overtaken(self.index, OWN_KEYS).await;
        let mut probe = self.server.probe().await;
        for key in overtaken.iter().chain(&self.came_back) {
            // A key without a deadline stays, so that the check for leftovers finds it.
            if probe.command::<i64>(["PTTL", key]).await > 0 {
                probe.command::<()>(["DEL", key]).await;
            }
        }
    }

    /// Returns a violation for each key that must not exist any more. Keys of clients in `killed` may exist,
    /// because these clients could not clean up. Contended keys may exist until they end: of a killed client, kept on
    /// purpose, or on a node that has missed a command while it was silent.
    pub(super) async fn leftovers(&self, killed: &BTreeSet<u32>) -> Vec<String> {
        let mut found = Vec::new();
        let mut probe = self.server.probe().await;
        for key in probe.keys().await {
            let left: i64 = probe.command(["PTTL", &key]).await;
            let kind: String = probe.command(["TYPE", &key]).await;
            // A hash has the fields of shared holders and of the marks of waiting writers, a sorted set the tickets and
            // the presences of a fair queue.
            let (longest, content): (_, Vec<String>) = match kind.as_str() {
                "hash" => (MARK, probe.command(["HKEYS", &key]).await),
                "zset" => (PRESENCE, probe.command(["ZRANGE", &key, "0", "-1"]).await),
                _ => (LONGEST_LEASE, vec![kind]),
            };
            let longest = (longest + self.lengthened).as_millis();
            let owner =
                key.strip_prefix(OWN_KEYS).and_then(|own| own.split(':').next()?.parse().ok());
            let excused = match owner {
                None if key.starts_with("redlock:fencing:") => true,
                Some(owner) => killed.contains(&owner),
                None => u128::try_from(left).is_ok_and(|left| left <= longest),
            };
            if left != -2 && !excused {
                let port = self.server.port();
                found.push(format!("left behind on {port}: {key} for {left} ms: {content:?}"));
            }
        }
        found
    }
}
