//! What strikes whom, so that no target has two faults at once.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Fault, HOLD_BACK, LONGEST_LEASE, Schedule, Strike, Target};

/// How long a target is left alone after a fault is over.
const REST: Duration = Duration::from_millis(20);

/// How long a guarded client takes no votes of a node whose fault is over: until it is connected
/// again, and the longest lease is over.
const PROBATION: Duration = LONGEST_LEASE.saturating_add(Duration::from_millis(300));
/// How long a client that a node has refused keeps away from it.
const REFUSED: Duration = Duration::from_millis(6500);

/// Which ways a fault of the network strikes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reach {
    /// One client's to one node.
    One,
    /// All that lead to one node.
    Node,
    /// One of each client's, as far as possible to another node for each.
    Partial,
    /// One client's to a majority of the nodes.
    Majority,
    /// All that lead to a majority of the nodes.
    EveryMajority,
    Everything,
}

pub(super) struct Planner {
    pub(super) schedule: Schedule,
    pub(super) choices: StdRng,
    /// Until when each is busy with its last fault.
    nodes: Vec<Duration>,
    clients: Vec<Duration>,
    ways: Vec<Duration>,
    /// Until when each node keeps out of each client's votes, by way.
    silent: Vec<Duration>,
}

impl Planner {
    pub(super) fn new(seed: u64, nodes: usize, clients: usize) -> Self {
        Self {
            schedule: Schedule { seed, nodes, clients, restart_guard: false, strikes: Vec::new() },
            choices: StdRng::seed_from_u64(seed),
            nodes: vec![Duration::ZERO; nodes],
            clients: vec![Duration::ZERO; clients],
            ways: vec![Duration::ZERO; clients * nodes],
            silent: vec![Duration::ZERO; clients * nodes],
        }
    }

    pub(super) fn more_nodes(&mut self, count: usize) {
        self.schedule.nodes = count;
        self.nodes.resize(count, Duration::ZERO);
        let ways = count * self.schedule.clients;
        self.ways.resize(ways, Duration::ZERO);
        self.silent.resize(ways, Duration::ZERO);
    }

    /// Plans a strike that leaves to every client a quorum of nodes able to vote.
    pub(super) fn strike_sparingly(&mut self, at: Duration, fault: Fault) {
        let (nodes, quorum) = (self.schedule.nodes, self.quorum());
        let silent = self.silent.chunks(nodes);
        let silent = silent.map(|silent| silent.iter().filter(|until| **until > at).count());
        if self.silences(fault) && silent.max().unwrap_or_default() >= nodes - quorum {
            return;
        }
        if fault.target() == Target::Ways {
            let reaches = [Reach::One, Reach::Node, Reach::Partial];
            let reach = reaches[self.choices.random_range(0..reaches.len())];
            self.strike_network(at, fault, reach);
        } else {
            self.strike(at, fault, 1);
        }
    }

    /// Plans a strike on the network, unless some of it is busy with other faults.
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
        if targets.iter().all(|way| self.ways[*way] <= at) {
            let lasts = self.lasts(fault);
            self.plan(at, fault, targets, lasts);
        }
    }

    /// Plans a strike, unless so many targets are busy with other faults.
    pub(super) fn strike(&mut self, at: Duration, fault: Fault, count: usize) {
        let Some(targets) = self.idle(at, fault, count) else { return };
        let ways = targets.iter().flat_map(|node| self.ways_to(*node));
        if fault != Fault::StepForward || ways.into_iter().all(|way| self.ways[way] <= at) {
            let lasts = self.lasts(fault);
            self.plan(at, fault, targets, lasts);
        }
    }

    /// Plans that the last vote that a quorum needs comes late: so many nodes deny theirs that the
    /// slow one decides. A good part of the lease is used up by then.
    pub(super) fn strike_two_ways(&mut self, at: Duration) {
        let denial = [Fault::OutOfMemory, Fault::Demote, Fault::Forbid];
        let denial = denial[self.choices.random_range(0..denial.len())];
        let delay = if self.one_in(2) { Fault::Pause } else { Fault::Freeze };
        let count = self.schedule.nodes - self.quorum() + 1;
        if let Some(mut targets) = self.idle(at, denial, count) {
            let denying = targets.split_off(1);
            let lasts = self.millis(50, 150);
            let ways: Vec<usize> = self.ways_to(targets[0]).collect();
            if self.one_in(3) && ways.iter().all(|way| self.ways[*way] <= at) {
                self.plan(at, Fault::Delay, ways, lasts + REST);
            } else {
                self.plan(at, delay, targets, lasts);
            }
            self.plan(at, denial, denying, lasts + REST);
        }
    }

    /// Chooses so many targets among those that are in order.
    fn idle(&mut self, at: Duration, fault: Fault, count: usize) -> Option<Vec<usize>> {
        let busy = self.busy(fault.target());
        let mut idle: Vec<usize> = (0..busy.len()).filter(|target| busy[*target] <= at).collect();
        (idle.len() >= count).then(|| {
            let choose = |_| idle.swap_remove(self.choices.random_range(0..idle.len()));
            (0..count).map(choose).collect()
        })
    }

    pub(super) fn plan(
        &mut self,
        at: Duration,
        fault: Fault,
        targets: Vec<usize>,
        lasts: Duration,
    ) {
        let until = at + lasts + REST;
        let back = match fault {
            _ if self.puts_on_probation(fault) => until + PROBATION,
            _ if Fault::REFUSALS.contains(&fault) => until + REFUSED,
            _ => until,
        };
        for &target in &targets {
            self.busy(fault.target())[target] = until;
            if fault == Fault::StepForward {
                // They are cut off meanwhile.
                for way in self.ways_to(target) {
                    self.ways[way] = until;
                }
            }
            if self.silences(fault) {
                let (from, step) = match fault.target() {
                    Target::Nodes => (target, self.schedule.nodes),
                    Target::Ways | Target::Clients => (target, self.silent.len()),
                };
                // It may be silent for longer by another fault.
                let silent = self.silent.iter_mut().skip(from).step_by(step);
                silent.for_each(|silent| *silent = back.max(*silent));
            }
        }
        let choice = self.choices.random();
        self.schedule.strikes.push(Strike { at, fault, targets, lasts, choice });
    }

    fn silences(&self, fault: Fault) -> bool {
        fault.silences() || self.puts_on_probation(fault)
    }

    fn puts_on_probation(&self, fault: Fault) -> bool {
        self.schedule.restart_guard && fault.puts_on_probation()
    }

    fn busy(&mut self, target: Target) -> &mut Vec<Duration> {
        match target {
            Target::Nodes => &mut self.nodes,
            Target::Clients => &mut self.clients,
            Target::Ways => &mut self.ways,
        }
    }

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
        }
    }

    pub(super) fn quorum(&self) -> usize {
        self.schedule.nodes / 2 + 1
    }

    /// The ways of all clients to a node.
    fn ways_to(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        (node..self.ways.len()).step_by(self.schedule.nodes)
    }

    /// When all is in order again, and every node votes.
    pub(super) fn all_idle(&self) -> Duration {
        let busy = self.nodes.iter().chain(&self.clients).chain(&self.ways).chain(&self.silent);
        busy.max().copied().unwrap_or_default()
    }

    pub(super) fn one_in(&mut self, count: u32) -> bool {
        self.choices.random_range(0..count) == 0
    }

    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.choices.random_range(from * 1000..=to * 1000))
    }
}
