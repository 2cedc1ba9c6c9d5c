//! A node, what has been done to it, and what should not be on it.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;

use super::clock::{BACK, FORWARD, lengthen_leases, shorten_leases};
use super::network::Network;
use super::strike::strike_node;
use super::{Fault, LONGEST_LEASE, OWN_KEYS};
use crate::redis_server::RedisServer;

/// A server, and what its strikes have left.
#[derive(Debug)]
pub(super) struct Node {
    index: usize,
    server: RedisServer,
    clock_ahead: i64,
    /// By how much leases may last longer here.
    lengthened: Duration,
    /// Keys that may stand where they were released.
    came_back: Vec<String>,
}

impl Node {
    pub(super) fn new(index: usize, server: RedisServer) -> Self {
        let (clock_ahead, lengthened) = (0, Duration::ZERO);
        Self { index, server, clock_ahead, lengthened, came_back: Vec::new() }
    }

    /// Makes a fault, and returns what the clients did wrong meanwhile.
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

    /// While nobody can see it: of the votes between a step and the next look at the clock nothing is
    /// promised.
    async fn step_forward(&mut self, network: &Network, lasts: Duration) {
        network.shut_off(self.index);
        sleep(lasts / 2).await;
        self.clock_ahead += FORWARD.as_secs().cast_signed();
        network.set_clock_ahead(self.index, self.clock_ahead);
        shorten_leases(&self.server, FORWARD).await;
        sleep(lasts / 2).await;
        network.let_in(self.index);
    }

    /// Removes the keys that requests have set which outlived their connections, and those that came
    /// back with a server which had forgotten their release: they keep others out for their lease,
    /// which is longer than anybody wants to wait here.
    pub(super) async fn forget(&self, network: &Network) {
        let overtaken = network.overtaken(self.index, OWN_KEYS).await;
        let mut probe = self.server.probe().await;
        for key in overtaken.iter().chain(&self.came_back) {
            // None has no deadline, or it stays here, and is found.
            if probe.command::<i64>(["PTTL", key]).await > 0 {
                probe.command::<()>(["DEL", key]).await;
            }
        }
    }

    /// What is on it that should not be. Clients that were `killed` had no time to clean up.
    pub(super) async fn leftovers(&self, killed: &BTreeSet<u32>) -> Vec<String> {
        let mut found = Vec::new();
        let longest = (LONGEST_LEASE + self.lengthened).as_millis();
        let mut probe = self.server.probe().await;
        for key in probe.keys().await {
            let left: i64 = probe.command(["PTTL", &key]).await;
            let owner =
                key.strip_prefix(OWN_KEYS).and_then(|own| own.split(':').next()?.parse().ok());
            let excused = match owner {
                None if key.starts_with("redlock:fencing:") => true,
                Some(owner) => killed.contains(&owner),
                // Of a client that was killed, or kept on purpose: it runs out in time.
                None => u128::try_from(left).is_ok_and(|left| left <= longest),
            };
            if left != -2 && !excused {
                let port = self.server.port();
                found.push(format!("left behind on {port}: {key} for {left} ms"));
            }
        }
        found
    }
}
