//! What fails when.

use std::time::Duration;

use rand::RngExt;

use super::planner::{Planner, Reach};
use super::{Fault, HOLD_BACK, LONGEST_LEASE, Target};

/// One fault, made on several targets at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// When, from the beginning.
    pub at: Duration,
    /// What.
    pub fault: Fault,
    /// On which nodes, clients or ways. The ways are numbered as the clients are, those of one client
    /// to all nodes before those of the next.
    pub targets: Vec<usize>,
    /// For how long.
    pub lasts: Duration,
    /// Decides what the fault leaves open, such as how late or how long a message is.
    pub choice: u64,
}

/// The strikes of one storm, in the order of their time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// What it was made from.
    pub seed: u64,
    /// How many nodes there are.
    pub nodes: usize,
    /// How many clients there are.
    pub clients: usize,
    /// Whether every client has the restart guard.
    pub restart_guard: bool,
    /// What fails.
    pub strikes: Vec<Strike>,
}

impl Schedule {
    /// One fault after another, each for `time` or for as long as two restarts take, then once on
    /// a majority of the nodes. One of the network then cuts a client off from a majority, then all
    /// clients from one, then everybody from everything.
    pub fn alone(seed: u64, faults: &[Fault], time: Duration) -> Self {
        let mut planner = Planner::new(seed, 3, 4);
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
                Target::Ways => {
                    for reach in [Reach::Majority, Reach::EveryMajority, Reach::Everything] {
                        planner.strike_network(begin, fault, reach);
                        begin = planner.all_idle() + LONGEST_LEASE / 20;
                    }
                }
            }
        }
        planner.schedule
    }

    /// One node after another, each as soon as the one before is back; all of them so many times, and
    /// after each time so long a calm that guarded clients are granted locks again.
    pub fn rolling(seed: u64, fault: Fault, times: u32) -> Self {
        let mut planner = Planner::new(seed, 3, 4);
        let mut at = Duration::ZERO;
        for _ in 0..times {
            for node in 0..planner.schedule.nodes {
                let lasts = planner.lasts(fault);
                planner.plan(at, fault, vec![node], lasts);
                at += lasts + planner.millis(40, 100);
            }
            // Until connections are no longer taken for short-lived, and made again with patience.
            at += LONGEST_LEASE * 2 + Duration::from_secs(1);
        }
        planner.schedule
    }

    /// The same for clients with the restart guard.
    #[must_use]
    pub fn guarded(self) -> Self {
        Self { restart_guard: true, ..self }
    }

    /// Each of [`Fault::REFUSALS`] on one node, then one of them on a majority. When the clients dare
    /// to come back, a node is slow for a while.
    pub fn refusals(seed: u64) -> Self {
        let mut planner = Planner::new(seed, 5, 4);
        let mut at = Duration::ZERO;
        for fault in Fault::REFUSALS {
            planner.strike(at, fault, 1);
            at += planner.millis(200, 400);
        }
        let fault = Fault::REFUSALS[planner.choices.random_range(0..2)];
        planner.strike(at, fault, planner.quorum());
        planner.plan(planner.all_idle(), Fault::Stutter, vec![0], LONGEST_LEASE * 2);
        planner.schedule
    }

    /// For `time`, the last vote that a quorum needs comes late, again and again.
    pub fn late_votes(seed: u64, time: Duration) -> Self {
        let mut planner = Planner::new(seed, 3, 4);
        let mut at = Duration::ZERO;
        while at < time {
            planner.strike_two_ways(at);
            at += planner.millis(180, 260);
        }
        planner.schedule
    }

    /// Random faults for `time`, several at once.
    pub fn random(seed: u64, time: Duration) -> Self {
        let mut planner = Planner::new(seed, 3, 5);
        if planner.one_in(2) {
            planner.more_nodes(5);
        }
        planner.schedule.restart_guard = planner.one_in(2);
        let faults = Fault::of_random_storms(planner.schedule.restart_guard);
        // One at the most: the node is lost to the rest of the storm.
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
                (0, Target::Ways) => planner.strike_network(at, fault, Reach::Everything),
                (1..=2, Target::Ways) => planner.strike_network(at, fault, Reach::EveryMajority),
                (3..=4, Target::Ways) => planner.strike_network(at, fault, Reach::Majority),
                (5..=8, _) => planner.strike_two_ways(at),
                _ => planner.strike_sparingly(at, fault),
            }
            at += planner.millis(10, 150);
        }
        planner.schedule
    }
}

impl Strike {
    /// The clients whose ways to so many of `nodes` it strikes that they have no quorum.
    pub(super) fn isolated(&self, nodes: usize, clients: usize) -> Vec<usize> {
        let struck =
            |client: &usize| self.targets.iter().filter(|way| *way / nodes == *client).count();
        let of_network = self.fault.target() == Target::Ways;
        (0..clients).filter(|client| of_network && struck(client) > (nodes - 1) / 2).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(10);

    #[test]
    fn a_seed_makes_the_same_schedule_each_time_and_another_one_another() {
        assert_eq!(Schedule::random(7, TIME), Schedule::random(7, TIME));
        assert_ne!(Schedule::random(7, TIME).strikes, Schedule::random(8, TIME).strikes);
        let alone = |seed| Schedule::alone(seed, &Fault::COVERED, TIME);
        assert_eq!(alone(7), alone(7));
    }

    /// The rule that the promises rest on: who forgets keeps out until the longest lease is over.
    #[test]
    fn nodes_that_forget_are_held_back_for_longer_than_any_lease() {
        for seed in 0..50 {
            let schedule = Schedule::random(seed, TIME);
            for strike in schedule.strikes {
                assert_ne!(strike.fault, Fault::Evict);
                assert!(schedule.restart_guard || !Fault::GUARDED.contains(&strike.fault));
                // It cannot know what was before it came.
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
            let ways = |strike: &Strike| match strike.fault {
                Fault::StepForward => {
                    let ways = |node| (0..clients).map(move |client| client * nodes + node);
                    strike.targets.iter().flat_map(ways).collect()
                }
                fault if fault.target() == Target::Ways => strike.targets.clone(),
                _ => Vec::new(),
            };
            for (index, one) in strikes.iter().enumerate() {
                for other in &strikes[index + 1..] {
                    let same_kind = one.fault.target() == other.fault.target();
                    let share = one.targets.iter().any(|target| other.targets.contains(target));
                    let share_ways = ways(one).iter().any(|way| ways(other).contains(way));
                    let apart = other.at >= one.at + one.lasts;
                    let disturbed = same_kind && share || share_ways;
                    assert!(apart || !disturbed, "{one:?} and {other:?}");
                }
            }
        }
    }

    /// Weaker storms find nothing.
    #[test]
    fn there_is_more_than_one_fault_per_lease_and_every_fault_occurs() {
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
