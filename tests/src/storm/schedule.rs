//! What fails when.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Fault, HOLD_BACK, LONGEST_LEASE};

/// How long a target is left alone after a fault is over.
const REST: Duration = Duration::from_millis(20);

/// One fault, made on several targets at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// When, from the beginning.
    pub at: Duration,
    /// What.
    pub fault: Fault,
    /// On which nodes or clients.
    pub targets: Vec<usize>,
    /// For how long.
    pub lasts: Duration,
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
    /// What fails.
    pub strikes: Vec<Strike>,
}

impl Schedule {
    /// One fault after another, each for `time` or for as long as two restarts take, then once on
    /// a majority of the nodes.
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
            if !fault.strikes_clients() {
                planner.strike(begin, fault, planner.quorum());
                begin = planner.all_idle() + LONGEST_LEASE / 6;
            }
        }
        planner.schedule
    }

    /// One node after another, each as soon as the one before is back; all of them so many times.
    pub fn rolling(seed: u64, fault: Fault, times: u32) -> Self {
        let mut planner = Planner::new(seed, 3, 4);
        let mut at = Duration::ZERO;
        for _ in 0..times {
            for node in 0..planner.schedule.nodes {
                let lasts = planner.lasts(fault);
                planner.plan(Strike { at, fault, targets: vec![node], lasts });
                at += lasts + planner.millis(40, 100);
            }
            // Until connections are no longer taken for short-lived, and made again with patience.
            at += LONGEST_LEASE * 2;
        }
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
        let mut at = Duration::ZERO;
        while at < time {
            let fault = Fault::COVERED[planner.choices.random_range(0..Fault::COVERED.len())];
            match planner.choices.random_range(0..20) {
                0 if !fault.strikes_clients() => planner.strike(at, fault, planner.schedule.nodes),
                1..=2 if !fault.strikes_clients() => planner.strike(at, fault, planner.quorum()),
                0..=4 => planner.strike(at, fault, 1),
                5..=8 => planner.strike_two_ways(at),
                _ => planner.strike_sparingly(at, fault),
            }
            at += planner.millis(10, 150);
        }
        planner.schedule
    }
}

struct Planner {
    schedule: Schedule,
    choices: StdRng,
    /// Until when each is busy with its last fault.
    nodes: Vec<Duration>,
    clients: Vec<Duration>,
    /// Until when each node keeps out of the votes.
    silent: Vec<Duration>,
}

impl Planner {
    fn new(seed: u64, nodes: usize, clients: usize) -> Self {
        Self {
            schedule: Schedule { seed, nodes, clients, strikes: Vec::new() },
            choices: StdRng::seed_from_u64(seed),
            nodes: vec![Duration::ZERO; nodes],
            clients: vec![Duration::ZERO; clients],
            silent: vec![Duration::ZERO; nodes],
        }
    }

    fn more_nodes(&mut self, count: usize) {
        self.schedule.nodes = count;
        self.nodes.resize(count, Duration::ZERO);
        self.silent.resize(count, Duration::ZERO);
    }

    /// Plans a strike on one target that leaves a quorum of nodes able to vote.
    fn strike_sparingly(&mut self, at: Duration, fault: Fault) {
        let silent = self.silent.iter().filter(|until| **until > at).count();
        if !fault.silences() || silent < self.schedule.nodes - self.quorum() {
            self.strike(at, fault, 1);
        }
    }

    /// Plans a strike, unless so many targets are busy with other faults.
    fn strike(&mut self, at: Duration, fault: Fault, count: usize) {
        if let Some(targets) = self.idle(at, fault, count) {
            let lasts = self.lasts(fault);
            self.plan(Strike { at, fault, targets, lasts });
        }
    }

    /// Plans that the last vote that a quorum needs comes late: so many nodes deny theirs that the
    /// slow one decides. A good part of the lease is used up by then.
    fn strike_two_ways(&mut self, at: Duration) {
        let denial = [Fault::OutOfMemory, Fault::Demote, Fault::Forbid];
        let denial = denial[self.choices.random_range(0..denial.len())];
        let delay = if self.one_in(2) { Fault::Pause } else { Fault::Freeze };
        let count = self.schedule.nodes - self.quorum() + 1;
        if let Some(mut targets) = self.idle(at, denial, count) {
            let denying = targets.split_off(1);
            let lasts = self.millis(50, 150);
            self.plan(Strike { at, fault: delay, targets, lasts });
            self.plan(Strike { at, fault: denial, targets: denying, lasts: lasts + REST });
        }
    }

    /// Chooses so many targets among those that are in order.
    fn idle(&mut self, at: Duration, fault: Fault, count: usize) -> Option<Vec<usize>> {
        let busy = if fault.strikes_clients() { &self.clients } else { &self.nodes };
        let mut idle: Vec<usize> = (0..busy.len()).filter(|target| busy[*target] <= at).collect();
        (idle.len() >= count).then(|| {
            let choose = |_| idle.swap_remove(self.choices.random_range(0..idle.len()));
            (0..count).map(choose).collect()
        })
    }

    fn plan(&mut self, strike: Strike) {
        let until = strike.at + strike.lasts + REST;
        for &target in &strike.targets {
            if strike.fault.strikes_clients() {
                self.clients[target] = until;
            } else {
                self.nodes[target] = until;
                if strike.fault.silences() {
                    self.silent[target] = until;
                }
            }
        }
        self.schedule.strikes.push(strike);
    }

    fn lasts(&mut self, fault: Fault) -> Duration {
        match fault {
            Fault::Restart | Fault::Forget => HOLD_BACK,
            Fault::RestartAtOnce => Duration::ZERO,
            Fault::Freeze if self.one_in(2) => self.millis(5, 100),
            Fault::Freeze => self.millis(100, 400),
            Fault::Stutter => self.millis(50, 300),
            Fault::Pause | Fault::Busy => self.millis(10, 200),
            Fault::Disconnect | Fault::FlushScripts => self.millis(20, 100),
            Fault::OutOfMemory | Fault::Demote | Fault::Forbid => self.millis(20, 300),
            Fault::StopClient if self.one_in(2) => self.millis(10, 200),
            Fault::StopClient => LONGEST_LEASE + self.millis(10, 200),
            Fault::KillClient => self.millis(10, 100),
        }
    }

    fn quorum(&self) -> usize {
        self.schedule.nodes / 2 + 1
    }

    fn all_idle(&self) -> Duration {
        self.nodes.iter().chain(&self.clients).max().copied().unwrap_or_default()
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.choices.random_range(0..count) == 0
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.choices.random_range(from * 1000..=to * 1000))
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
            for strike in Schedule::random(seed, TIME).strikes {
                assert_ne!(strike.fault, Fault::RestartAtOnce);
                if strike.fault.forgets() {
                    assert!(strike.lasts > LONGEST_LEASE, "{strike:?}");
                }
            }
        }
    }

    #[test]
    fn no_target_has_two_faults_at_once() {
        for seed in 0..50 {
            let strikes = Schedule::random(seed, TIME).strikes;
            for (index, one) in strikes.iter().enumerate() {
                for other in &strikes[index + 1..] {
                    let same_kind = one.fault.strikes_clients() == other.fault.strikes_clients();
                    let share = one.targets.iter().any(|target| other.targets.contains(target));
                    let apart = other.at >= one.at + one.lasts;
                    assert!(apart || !same_kind || !share, "{one:?} and {other:?}");
                }
            }
        }
    }

    /// Weaker storms find nothing.
    #[test]
    fn there_is_more_than_one_fault_per_lease_and_every_fault_occurs() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let strikes = Schedule::random(seed, TIME).strikes;
            let leases = TIME.div_duration_f64(LONGEST_LEASE);
            assert!(f64::from(u32::try_from(strikes.len()).unwrap()) > 2.0 * leases, "{seed}");
            kinds.extend(strikes.into_iter().map(|strike| strike.fault));
        }
        assert_eq!(kinds.len(), Fault::COVERED.len(), "{kinds:?}");
    }
}
