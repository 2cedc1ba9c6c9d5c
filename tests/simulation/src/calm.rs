//! Plans without faults, in which readers and writers never rest.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redlock_core::Dialect;

use super::plan::{Plan, drift_of_a_clock};
use super::server::WallClock;
use super::sharing::Sharing;

/// The longest time that a caller waits beside callers that never rest.
const LONGEST_WAIT: Duration = Duration::from_millis(3200);

/// The longest time that a caller waits among many readers and few writers.
const LONGEST_WAIT_AMONG_READERS: Duration = Duration::from_secs(2);

/// A lease that lasts longer than a run, so that nothing but the marks of writers ends the sharing of readers.
const LONG_LEASE: Duration = Duration::from_secs(20);

impl Plan {
    /// Returns a plan without faults, with few writers among many readers. Without marks, and unless the readers of a
    /// process looked for marks, they would keep the writers of other processes out as long as they overlap.
    pub(super) fn calm_readers(seed: u64) -> Self {
        let workers = SmallRng::seed_from_u64(seed).random_range(8..=16);
        let longest_wait = Some(LONGEST_WAIT_AMONG_READERS);
        let sharing = Some(Sharing { writers: 5, permits: false, changes_modes: false });
        let leases = vec![LONG_LEASE];
        Self { workers, leases, sharing, longest_wait, ..Self::calm(seed) }
    }

    /// Returns a plan without faults. On one server, workers also use permits.
    pub(super) fn calm(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let servers = [1, 3, 5][random.random_range(0..3)];
        let clock = |random: &mut SmallRng| WallClock { drift: drift_of_a_clock(random), ahead: 0 };
        Self {
            seed,
            servers: (0..servers).map(|_| clock(&mut random)).collect(),
            clients: (0..random.random_range(2..=4))
                .map(|_| drift_of_a_clock(&mut random))
                .collect(),
            workers: random.random_range(2..=4),
            keys: 1,
            dialect: Dialect::Plain,
            sharing: Some(Sharing::on(servers)),
            longest_wait: Some(LONGEST_WAIT),
            longest_pause: 10,
            latency: 0..=random.random_range(1..=3),
            leases: vec![Duration::from_millis(600)],
            restart_guard: false,
            checks_guard: true,
            beat: None,
            idle: None,
            leadership: None,
            has_operator: false,
            tracks: true,
            longest_hold: Duration::from_millis(60),
            length: Duration::from_secs(4),
            faults: Vec::new(),
        }
    }
}
