//! The faults of a storm and their times.

use std::time::Duration;

use rand::RngExt;

use super::planner::{Planner, Reach};
use super::{Fault, HOLD_BACK, LONGEST_LEASE, Target};

/// One fault, made on several targets at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// The time since the beginning of the schedule.
    pub at: Duration,
    /// The fault.
    pub fault: Fault,
    /// The indices of the nodes, clients or links. The links of the first client, one per node, come
    /// first, then those of the second client, and so on.
    pub targets: Vec<usize>,
    /// The duration.
    pub lasts: Duration,
    /// A random number that selects a variant of the fault, such as the length of a delay.
    pub choice: u64,
}

/// The kind of the nodes of a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Servers.
    Servers,
    /// A Sentinel group.
    Group,
    /// A Redis Cluster of three masters with a replica each.
    Cluster,
    /// A server, a Sentinel group and a Redis Cluster.
    Mixed,
    /// Up to three PostgreSQL servers, and up to two Redis servers beside them. The former freeze and restart, the latter
    /// freeze.
    Postgres(usize, usize),
}

impl NodeKind {
    /// Returns the names of the nodes and their faults; empty for servers.
    pub(super) fn failing_over(self) -> &'static [(&'static str, &'static [Fault])] {
        match self {
            Self::Servers => &[],
            Self::Group => &Fault::MIXED[1..2],
            Self::Cluster => &Fault::MIXED[2..],
            Self::Mixed => &Fault::MIXED,
            Self::Postgres(postgres, redis) => &Fault::STORES[3 - postgres..3 + redis],
        }
    }
}

/// The strikes of one storm, in the order of their times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The seed of the random choices.
    pub seed: u64,
    /// The number of nodes.
    pub nodes: usize,
    /// The kind of the nodes.
    pub kind: NodeKind,
    /// The number of clients.
    pub clients: usize,
    /// Whether every client has the restart guard.
    pub restart_guard: bool,
    /// The faults.
    pub strikes: Vec<Strike>,
}

impl Schedule {
    /// Makes one kind of fault after another. Each kind strikes again and again for `time`, and leaves a
    /// quorum to every client; kinds that lose locks do so for at least the time of two restarts. Then a
    /// fault of nodes strikes a majority of the nodes at once. A network fault strikes the links from
    /// one client to a majority, then those from all clients to a majority, then all links.
    pub fn alone(seed: u64, faults: &[Fault], time: Duration) -> Self {
        let mut planner = Planner::new(seed, 3, 3);
        let mut begin = Duration::ZERO;
        for &fault in faults {
            let mut at = begin;
            let time = if fault.forgets() { time.max(HOLD_BACK * 2) } else { time };
            while at < begin + time {
                planner.strike_sparingly(at, fault);
                at += planner.millis(15, 60);
            }
            begin = planner.all_idle().max(at);
            match fault.target() {
                Target::Clients => {}
                Target::Nodes => {
                    planner.strike(begin, fault, planner.quorum());
                    begin = planner.all_idle() + LONGEST_LEASE / 6;
                }
                Target::Links => {
                    for reach in [Reach::Majority, Reach::EveryMajority, Reach::Everything] {
                        planner.strike_network(begin, fault, reach);
                        begin = planner.all_idle() + LONGEST_LEASE / 20;
                    }
                }
            }
        }
        planner.schedule
    }

    /// Strikes one node after another, each as soon as the previous node is back, and repeats this `times`
    /// times. Each pass is followed by a pause, in which clients with the restart guard get locks again.
    pub fn rolling(seed: u64, fault: Fault, times: u32) -> Self {
        let mut planner = Planner::new(seed, 3, 4);
        let mut at = Duration::ZERO;
        for _ in 0..times {
            for node in 0..planner.schedule.nodes {
                let lasts = planner.lasts(fault);
                planner.plan(at, fault, vec![node], lasts);
                at += lasts + planner.millis(40, 100);
            }
            // A client that loses a young connection reconnects with a delay. Wait until no connection
            // counts as young.
            at += LONGEST_LEASE * 2 + Duration::from_secs(1);
        }
        planner.schedule
    }

    /// Returns the same schedule for clients with the restart guard.
    #[must_use]
    pub fn guarded(self) -> Self {
        Self { restart_guard: true, ..self }
    }

    /// Makes each of [`Fault::REFUSALS`] on one node, then one of them on a majority. When the clients
    /// reconnect, a node is slow for a while.
    pub fn refusals(seed: u64) -> Self {
        let mut planner = Planner::new(seed, 5, 2);
        let mut at = Duration::ZERO;
        for fault in Fault::REFUSALS {
            planner.strike(at, fault, 1);
            at += planner.millis(200, 400);
        }
        let fault = Fault::REFUSALS[planner.choices.random_range(0..2)];
        planner.strike(at, fault, planner.quorum());
        planner.plan(planner.all_idle(), Fault::Stutter, vec![0], LONGEST_LEASE * 5);
        planner.schedule
    }

    /// Delays the last vote for a quorum, again and again for `time`.
    pub fn late_votes(seed: u64, time: Duration) -> Self {
        let mut planner = Planner::new(seed, 3, 4);
        let mut at = Duration::ZERO;
        while at < time {
            planner.strike_late_vote(at);
            at += planner.millis(180, 260);
        }
        planner.schedule
    }

    /// Makes random faults for `time`, several at once.
    pub fn random(seed: u64, time: Duration) -> Self {
        let nodes = if seed.is_multiple_of(2) { 3 } else { 5 };
        Self::random_with(seed, time, nodes, 5)
    }

    /// Makes random faults for `time`, with this many nodes and clients.
    pub fn random_with(seed: u64, time: Duration, nodes: usize, clients: usize) -> Self {
        let mut planner = Planner::new(seed, nodes, clients);

        planner.schedule.restart_guard = planner.one_in(2);
        let faults = Fault::of_random_storms(planner.schedule.restart_guard);
        // At most one refusal, because the clients do not use its node for the rest of the storm.
        let refuses = planner.schedule.nodes == 5 && planner.one_in(2);
        let mut refuses_at = refuses
            .then(|| planner.choices.random_range(0.0..0.7))
            .map(|share| time.mul_f64(share));
        let mut at = Duration::ZERO;
        while at < time {
            if refuses_at.take_if(|refuses_at| at >= *refuses_at).is_some() {
                let fault = Fault::REFUSALS[planner.choices.random_range(0..2)];
                planner.strike(at, fault, 1);
            }
            let fault = faults[planner.choices.random_range(0..faults.len())];
            match (planner.choices.random_range(0..20), fault.target()) {
                (0, Target::Nodes) => planner.strike(at, fault, planner.schedule.nodes),
                (1..=2, Target::Nodes) => planner.strike(at, fault, planner.quorum()),
                (0..=4, Target::Nodes | Target::Clients) => planner.strike(at, fault, 1),
                (0, Target::Links) => planner.strike_network(at, fault, Reach::Everything),
                (1..=2, Target::Links) => planner.strike_network(at, fault, Reach::EveryMajority),
                (3..=4, Target::Links) => planner.strike_network(at, fault, Reach::Majority),
                (5..=8, _) => planner.strike_late_vote(at),
                _ => planner.strike_sparingly(at, fault),
            }
            at += planner.millis(10, 150);
        }
        planner.schedule
    }

    /// Lets the clients contend for `time` without a fault: a single one strikes at the end.
    pub fn calm(seed: u64, time: Duration, nodes: usize, clients: usize) -> Self {
        let mut planner = Planner::new(seed, nodes, clients);
        planner.plan(time, Fault::StopClient, vec![0], Duration::from_millis(1));
        planner.schedule
    }

    /// Makes random faults of nodes that fail over for `time`, and stops and kills clients.
    pub fn failovers(seed: u64, time: Duration, kind: NodeKind) -> Self {
        let nodes = kind.failing_over();
        let mut planner = Planner::new(seed, nodes.len(), 4);
        planner.schedule.kind = kind;
        for (node, (name, faults)) in nodes.iter().enumerate() {
            let mut at = Duration::ZERO;
            while at < time {
                let fault = faults[planner.choices.random_range(0..faults.len())];
                let lasts = planner.lasts(fault);
                planner.plan(at, fault, vec![node], lasts);
                at += lasts
                    + if *name == "server" {
                        planner.millis(300, 1500)
                    } else {
                        planner.millis(3000, 8000)
                    };
            }
        }
        let mut at = Duration::ZERO;
        while at < time {
            // A store does not show whose locks are left. So no client of theirs ends without its clean-up.
            let may_kill = !matches!(kind, NodeKind::Postgres(..));
            let fault =
                if planner.one_in(2) || !may_kill { Fault::StopClient } else { Fault::KillClient };
            planner.strike(at, fault, 1);
            at += planner.millis(500, 3000);
        }
        planner.schedule.strikes.sort_by_key(|strike| strike.at);
        planner.schedule
    }
}

impl Strike {
    /// Returns the clients that cannot reach a quorum of `nodes` over their other links.
    pub(super) fn isolated(&self, nodes: usize, clients: usize) -> Vec<usize> {
        let struck =
            |client: &usize| self.targets.iter().filter(|link| *link / nodes == *client).count();
        let of_network = self.fault.target() == Target::Links;
        (0..clients).filter(|client| of_network && struck(client) > (nodes - 1) / 2).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(10);

    #[test]
    fn a_schedule_depends_on_its_seed_alone() {
        assert_eq!(Schedule::random(7, TIME), Schedule::random(7, TIME));
        assert_ne!(Schedule::random(7, TIME).strikes, Schedule::random(8, TIME).strikes);
        let alone = |seed| Schedule::alone(seed, &Fault::COVERED, TIME);
        assert_eq!(alone(7), alone(7));
    }

    /// The promises require that a node that has lost its locks does not vote until the longest lease is
    /// over.
    #[test]
    fn nodes_without_their_locks_do_not_vote_for_the_longest_lease() {
        for seed in 0..50 {
            let schedule = Schedule::random(seed, TIME);
            for strike in schedule.strikes {
                assert_ne!(strike.fault, Fault::Evict);
                assert!(schedule.restart_guard || !Fault::GUARDED.contains(&strike.fault));
                // A new client cannot detect a clock step that happened before it connected.
                assert!(!schedule.restart_guard || strike.fault != Fault::KillClient);
                if strike.fault.forgets() {
                    assert!(strike.lasts > LONGEST_LEASE, "{strike:?}");
                }
            }
        }
    }

    #[test]
    fn no_target_has_two_faults_at_once() {
        for seed in 0..50 {
            let Schedule { nodes, clients, strikes, .. } = Schedule::random(seed, TIME);
            let links = |strike: &Strike| match strike.fault {
                Fault::StepForward => {
                    let links = |node| (0..clients).map(move |client| client * nodes + node);
                    strike.targets.iter().flat_map(links).collect()
                }
                fault if fault.target() == Target::Links => strike.targets.clone(),
                _ => Vec::new(),
            };
            for (index, one) in strikes.iter().enumerate() {
                for other in &strikes[index + 1..] {
                    let same_kind = one.fault.target() == other.fault.target();
                    let share = one.targets.iter().any(|target| other.targets.contains(target));
                    let share_links = links(one).iter().any(|link| links(other).contains(link));
                    let apart = other.at >= one.at + one.lasts;
                    let disturbed = same_kind && share || share_links;
                    assert!(apart || !disturbed, "{one:?} and {other:?}");
                }
            }
        }
    }

    /// Storms with fewer faults find no violations.
    #[test]
    fn there_are_more_than_two_faults_per_lease_and_every_fault_occurs() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let strikes = Schedule::random(seed, TIME).strikes;
            let leases = TIME.div_duration_f64(LONGEST_LEASE);
            assert!(f64::from(u32::try_from(strikes.len()).unwrap()) > 2.0 * leases, "{seed}");
            kinds.extend(strikes.into_iter().map(|strike| strike.fault));
        }
        let faults = [&Fault::COVERED[..], &Fault::REFUSALS, &Fault::GUARDED].concat();
        assert_eq!(kinds, faults.into_iter().collect());
    }
}
