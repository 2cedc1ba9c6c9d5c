//! Plans strikes, so that no target has two faults at once.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Fault, HOLD_BACK, LONGEST_LEASE, NodeKind, Schedule, Strike, Target};

/// The pause of a target after a fault.
const REST: Duration = Duration::from_millis(20);

/// How long a client with the restart guard ignores the votes of a node after a restart or a clock step: the
/// time to reconnect plus the longest lease.
const QUARANTINE: Duration = LONGEST_LEASE.saturating_add(Duration::from_millis(300));
/// How long a client does not reconnect to a node that has refused its credentials.
const REFUSED: Duration = Duration::from_millis(6500);

/// The links that a network fault strikes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reach {
    /// The link from one client to one node.
    One,
    /// The links from all clients to one node.
    Node,
    /// One link of each client, to a different node for each client as far as possible.
    Partial,
    /// The links from one client to a majority of the nodes.
    Majority,
    /// The links from all clients to a majority of the nodes.
    EveryMajority,
    /// All links.
    Everything,
}

/// Builds a [`Schedule`].
pub(super) struct Planner {
    pub(super) schedule: Schedule,
    pub(super) choices: StdRng,
    /// For each node, client and link, the end of its last fault.
    busy: [Vec<Duration>; 3],
    /// For each link, the time until which the client gets no vote from the node.
    silent: Vec<Duration>,
}

impl Planner {
    pub(super) fn new(seed: u64, nodes: usize, clients: usize) -> Self {
        let (kind, restart_guard, strikes) = (NodeKind::Servers, false, Vec::new());
        let busy = [nodes, clients, clients * nodes].map(|count| vec![Duration::ZERO; count]);
        let silent = busy[Target::Links as usize].clone();
        Self {
            schedule: Schedule { seed, nodes, kind, clients, restart_guard, strikes },
            choices: StdRng::seed_from_u64(seed),
            busy,
            silent,
        }
    }

    /// Plans a strike, unless a client would then get votes from fewer nodes than a quorum.
    pub(super) fn strike_sparingly(&mut self, at: Duration, fault: Fault) {
        let (nodes, quorum) = (self.schedule.nodes, self.quorum());
        let silent = self.silent.chunks(nodes);
        let silent = silent.map(|silent| silent.iter().filter(|until| **until > at).count());
        if self.prevents_votes(fault) && silent.max().unwrap_or_default() >= nodes - quorum {
            return;
        }
        if fault.target() == Target::Links {
            let reaches = [Reach::One, Reach::Node, Reach::Partial];
            let reach = reaches[self.choices.random_range(0..reaches.len())];
            self.strike_network(at, fault, reach);
        } else {
            self.strike(at, fault, 1);
        }
    }

    /// Plans a strike on the network, unless one of its links has another fault.
    pub(super) fn strike_network(&mut self, at: Duration, fault: Fault, reach: Reach) {
        let (nodes, clients) = (self.schedule.nodes, self.schedule.clients);
        let node = self.choices.random_range(0..nodes);
        let client = self.choices.random_range(0..clients);
        let (whose, count) = match reach {
            Reach::One => (client..client + 1, 1),
            Reach::Node | Reach::Partial => (0..clients, 1),
            Reach::Majority => (client..client + 1, self.quorum()),
            Reach::EveryMajority => (0..clients, self.quorum()),
            Reach::Everything => (0..clients, nodes),
        };
        let targets = whose.flat_map(|client| {
            let first = if matches!(reach, Reach::Partial) { node + client } else { node };
            (first..first + count).map(move |node| client * nodes + node % nodes)
        });
        let targets: Vec<usize> = targets.collect();
        if self.are_idle(at, &targets) {
            let lasts = self.lasts(fault);
            self.plan(at, fault, targets, lasts);
        }
    }

    /// Plans a strike on `count` nodes or clients, unless fewer than `count` are free of other faults.
    pub(super) fn strike(&mut self, at: Duration, fault: Fault, count: usize) {
        let Some(targets) = self.idle(at, fault, count) else { return };
        let links: Vec<_> = targets.iter().flat_map(|node| self.links_to(*node)).collect();
        if fault != Fault::StepForward || self.are_idle(at, &links) {
            let lasts = self.lasts(fault);
            self.plan(at, fault, targets, lasts);
        }
    }

    /// Plans two faults at once, so that the last vote for a quorum arrives late: one node is slow, and
    /// so many others refuse that its vote decides. A large part of the lease has passed by then.
    pub(super) fn strike_late_vote(&mut self, at: Duration) {
        let denial = [Fault::OutOfMemory, Fault::Demote, Fault::Forbid];
        let denial = denial[self.choices.random_range(0..denial.len())];
        let delay = if self.one_in(2) { Fault::Pause } else { Fault::Freeze };
        let count = self.schedule.nodes - self.quorum() + 1;
        if let Some(mut targets) = self.idle(at, denial, count) {
            let denying = targets.split_off(1);
            let lasts = self.millis(50, 150);
            let links: Vec<usize> = self.links_to(targets[0]).collect();
            if self.one_in(3) && self.are_idle(at, &links) {
                self.plan(at, Fault::Delay, links, lasts + REST);
            } else {
                self.plan(at, delay, targets, lasts);
            }
            self.plan(at, denial, denying, lasts + REST);
        }
    }

    /// Returns whether none of these links has a fault.
    fn are_idle(&self, at: Duration, links: &[usize]) -> bool {
        links.iter().all(|link| self.busy[Target::Links as usize][*link] <= at)
    }

    /// Chooses `count` random targets among those without a fault; `None` if there are fewer.
    fn idle(&mut self, at: Duration, fault: Fault, count: usize) -> Option<Vec<usize>> {
        let busy = &self.busy[fault.target() as usize];
        let mut idle: Vec<usize> = (0..busy.len()).filter(|target| busy[*target] <= at).collect();
        (idle.len() >= count).then(|| {
            let choose = |_| idle.swap_remove(self.choices.random_range(0..idle.len()));
            (0..count).map(choose).collect()
        })
    }

    /// Adds a strike to the schedule, and records until when its targets are affected.
    pub(super) fn plan(
        &mut self,
        at: Duration,
        fault: Fault,
        targets: Vec<usize>,
        lasts: Duration,
    ) {
        let until = at + lasts + REST;
        let back = match fault {
            _ if self.quarantines(fault) => until + QUARANTINE,
            _ if Fault::REFUSALS.contains(&fault) => until + REFUSED,
            _ => until,
        };
        for &target in &targets {
            self.busy[fault.target() as usize][target] = until;
            if fault == Fault::StepForward {
                // The fault cuts all clients off from the node.
                for link in self.links_to(target) {
                    self.busy[Target::Links as usize][link] = until;
                }
            }
            if self.prevents_votes(fault) {
                let (from, step) = match fault.target() {
                    Target::Nodes => (target, self.schedule.nodes),
                    Target::Links | Target::Clients => (target, self.silent.len()),
                };
                // An earlier fault may prevent votes for longer.
                let silent = self.silent.iter_mut().skip(from).step_by(step);
                silent.for_each(|silent| *silent = back.max(*silent));
            }
        }
        let choice = self.choices.random();
        self.schedule.strikes.push(Strike { at, fault, targets, lasts, choice });
    }

    fn prevents_votes(&self, fault: Fault) -> bool {
        fault.prevents_votes() || self.quarantines(fault)
    }

    fn quarantines(&self, fault: Fault) -> bool {
        self.schedule.restart_guard && fault.quarantines()
    }

    /// Chooses the duration of a fault.
    pub(super) fn lasts(&mut self, fault: Fault) -> Duration {
        match fault {
            Fault::Restart | Fault::PowerCut | Fault::Forget => HOLD_BACK,
            Fault::RestartAtOnce | Fault::PowerCutAtOnce | Fault::Evict | Fault::StepBack => {
                Duration::ZERO
            }
            Fault::Freeze if self.one_in(2) => self.millis(5, 100),
            Fault::Freeze => self.millis(100, 400),
            Fault::Stutter => self.millis(50, 300),
            Fault::Pause | Fault::Busy | Fault::Cut => self.millis(10, 200),
            Fault::Disconnect | Fault::FlushScripts => self.millis(20, 100),
            Fault::OutOfMemory
            | Fault::Demote
            | Fault::MasterDown
            | Fault::NoReplicas
            | Fault::Misconfigured
            | Fault::Forbid
            | Fault::ForeignKey => self.millis(20, 300),
            Fault::WrongPassword | Fault::DeleteUser | Fault::TooManyClients => {
                self.millis(50, 150)
            }
            Fault::StopClient if self.one_in(2) => self.millis(10, 200),
            Fault::StopClient => LONGEST_LEASE + self.millis(10, 200),
            Fault::RestartWithData | Fault::KillClient => self.millis(10, 100),
            Fault::Silence | Fault::LoseRequests | Fault::LoseReplies => self.millis(20, 200),
            Fault::Delay => self.millis(80, 250),
            Fault::Loading => self.millis(150, 300),
            Fault::Tear | Fault::StepForward => self.millis(20, 60),
            Fault::Overtake => self.millis(40, 120),
            // Besides the time of a promotion, if there is one.
            Fault::KillMaster
            | Fault::FreezeMaster
            | Fault::FailOver
            | Fault::KillSentinel
            | Fault::MoveSlot => self.millis(10, 900),
        }
    }

    pub(super) fn quorum(&self) -> usize {
        self.schedule.nodes / 2 + 1
    }

    /// Returns the links of all clients to a node.
    fn links_to(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        (node..self.silent.len()).step_by(self.schedule.nodes)
    }

    /// Returns the time at which all planned faults are over and every node votes again.
    pub(super) fn all_idle(&self) -> Duration {
        self.busy.iter().flatten().chain(&self.silent).max().copied().unwrap_or_default()
    }

    pub(super) fn one_in(&mut self, count: u32) -> bool {
        self.choices.random_range(0..count) == 0
    }

    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.choices.random_range(from * 1000..=to * 1000))
    }
}
