//! The steps of the servers' wall clocks in a plan.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redlock_core::Dialect;

use super::plan::{Fault, LONGEST_PAUSE, Plan, Weakness, any_dialect, drift_of_a_clock};
use super::promise::UNNOTICED;
use super::server::WallClock;
use super::sharing::Sharing;

/// Forward steps in milliseconds. They are longer than any lease, and longer than any answer takes: a slow
/// answer hides a shorter step until the next reading of the clock.
const FORWARD: RangeInclusive<i64> = 1500..=10_000;
/// Backward steps in milliseconds. They prolong leases, so all of them together are shorter than the time
/// that a run leaves for leases to expire at its end.
const BACK: RangeInclusive<i64> = 1..=200;

/// The sizes of silent steps in milliseconds: too small to distinguish from drift, somewhat larger, shorter
/// than the leases, and longer.
const SILENT_STEPS: [RangeInclusive<i64>; 4] = [20..=50, 51..=160, 160..=1000, 1000..=10_000];
/// The leases in plans with silent steps. Each is longer than the time to notice a step by half a second or
/// more.
const LEASES: [Duration; 3] =
    [Duration::from_millis(1200), Duration::from_millis(1800), Duration::from_secs(3)];
const LONGEST_HOLD: Duration = Duration::from_millis(2800);
const LENGTH: Duration = Duration::from_secs(5);

/// The idle time of some runs, in seconds. It is so long that clocks which drift by as much as leases allow
/// would look stepped afterwards.
const IDLE: RangeInclusive<u64> = 65..=130;
/// The drift of well-kept clocks, in millionths. A client's and a server's drift together stay below the
/// 0.1 % that the rule for steps tolerates.
const WELL_KEPT_DRIFT: RangeInclusive<i32> = -400..=400;

impl Plan {
    /// Returns a plan with silent steps of any size in both directions.
    pub(super) fn silent_steps(seed: u64, restart_guard: bool) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let is_idle = random.random_ratio(1, 12);
        let drift = |random: &mut SmallRng| {
            if is_idle { random.random_range(WELL_KEPT_DRIFT) } else { drift_of_a_clock(random) }
        };
        let clock = |random: &mut SmallRng| WallClock {
            drift: drift(random),
            ahead: random.random_range(0..5000),
        };
        let servers = if random.random_ratio(1, 6) { 5 } else { 3 };
        let dialect = any_dialect(&mut random);
        let mut plan = Self {
            seed,
            servers: (0..servers).map(|_| clock(&mut random)).collect(),
            clients: (0..random.random_range(2..=3)).map(|_| drift(&mut random)).collect(),
            workers: random.random_range(1..=2),
            keys: 1,
            dialect,
            sharing: Sharing::random(&mut random, dialect, servers),
            longest_wait: None,
            longest_pause: LONGEST_PAUSE,
            latency: 0..=random.random_range(1..=12),
            leases: LEASES.to_vec(),
            restart_guard,
            checks_guard: restart_guard,
            beat: None,
            idle: None,
            leadership: None,
            has_operator: false,
            tracks: true,
            longest_hold: LONGEST_HOLD,
            length: LENGTH,
            faults: Vec::new(),
        };
        if random.random_ratio(1, 2) {
            plan.add_faults(&mut random, 500..=3000, false, Weakness::None);
        }
        plan.add_silent_steps(&mut random);
        plan.sort();
        if is_idle {
            plan.add_idle_time(&mut random);
        }
        plan
    }

    /// Returns a plan that silently steps the clocks of two servers. The second step comes after the
    /// clients can have noticed the first one, and within the same lease.
    pub(super) fn rolling_steps(seed: u64, restart_guard: bool) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let lease = Duration::from_secs(3);
        let clock = |random: &mut SmallRng| WallClock { drift: drift_of_a_clock(random), ahead: 0 };
        let mut plan = Self {
            seed,
            servers: (0..3).map(|_| clock(&mut random)).collect(),
            clients: (0..3).map(|_| drift_of_a_clock(&mut random)).collect(),
            workers: 2,
            keys: 1,
            dialect: Dialect::Plain,
            sharing: None,
            longest_wait: None,
            longest_pause: LONGEST_PAUSE,
            latency: 0..=random.random_range(1..=12),
            leases: vec![lease],
            restart_guard,
            checks_guard: true,
            beat: None,
            idle: None,
            leadership: None,
            has_operator: false,
            tracks: restart_guard,
            longest_hold: Duration::from_secs(2),
            length: Duration::from_secs(6),
            faults: Vec::new(),
        };
        let mut at = Duration::from_millis(random.random_range(1000..=2500));
        let first = random.random_range(0..3);
        for server in [first, (first + 1) % 3] {
            let by = random.random_range(FORWARD) + 2000;
            plan.add(at, Fault::StepClock { server, by, ends_connections: false });
            at += UNNOTICED + Duration::from_millis(random.random_range(50..=800));
        }
        plan
    }

    /// Adds forward steps that end the connections, and small backward steps, some of them silent.
    pub(super) fn add_steps(&mut self, random: &mut SmallRng) {
        for _ in 0..random.random_range(1..=8) {
            let at = self.length.mul_f64(random.random_range(0.0..1.0));
            let server = random.random_range(0..self.servers.len());
            if random.random_ratio(1, 3) {
                let by = -random.random_range(BACK);
                self.add(
                    at,
                    Fault::StepClock { server, by, ends_connections: random.random_ratio(1, 2) },
                );
            } else {
                let by = random.random_range(FORWARD);
                self.add(at, Fault::StepClock { server, by, ends_connections: true });
            }
        }
    }

    /// Adds silent steps. In half of the runs, clients can notice each step before the next one.
    fn add_silent_steps(&mut self, random: &mut SmallRng) {
        let rolling = random.random_ratio(1, 2);
        let size = random.random_range(0..SILENT_STEPS.len());
        let mut at = Duration::from_millis(random.random_range(200..=2000));
        let mut server = random.random_range(0..self.servers.len());
        while at < self.length {
            // Two thirds of the steps come from one range of sizes, so that several such steps fall into
            // one lease.
            let size = if random.random_ratio(2, 3) {
                size
            } else {
                random.random_range(0..SILENT_STEPS.len())
            };
            let by = random.random_range(SILENT_STEPS[size].clone());
            let by = if random.random_ratio(1, 4) { -by } else { by };
            self.add(at, Fault::StepClock { server, by, ends_connections: false });
            server = (server + random.random_range(1..self.servers.len())) % self.servers.len();
            at += Duration::from_millis(random.random_range(0..=1200));
            if rolling {
                at += UNNOTICED;
            }
        }
    }

    /// Adds a long idle time for all workers. One client may be cut off from some servers until its end.
    fn add_idle_time(&mut self, random: &mut SmallRng) {
        let at = self.length.mul_f64(random.random_range(0.1..0.6));
        let client = random.random_range(0..self.clients.len());
        let until = Duration::from_millis(random.random_range(10..=1500));
        self.hold(random, client, at.saturating_sub(UNNOTICED), at + until);
        self.sort();
        let idle_time = Duration::from_secs(random.random_range(IDLE));
        for (due, _) in self.faults.iter_mut().filter(|(due, _)| *due > at) {
            *due += idle_time;
        }
        self.idle = Some(at..at + idle_time);
        self.length += idle_time;
    }

    /// Returns the sum of all backward steps.
    pub(super) fn stepped_back(&self) -> Duration {
        let back = self.faults.iter().filter_map(|(_, fault)| match fault {
            Fault::StepClock { by: by @ ..0, .. } => Some(by.unsigned_abs()),
            _ => None,
        });
        Duration::from_millis(back.sum())
    }

    /// Returns how far a client's clock and a server's clock may run apart, in millionths.
    pub(super) fn runs_apart(&self) -> u32 {
        let most = |drifts: &mut dyn Iterator<Item = i32>| {
            drifts.map(i32::unsigned_abs).max().unwrap_or_default()
        };
        most(&mut self.clients.iter().copied())
            + most(&mut self.servers.iter().map(|clock| clock.drift))
    }
}
