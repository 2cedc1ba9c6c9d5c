//! The plan of a run, which follows from a seed: the clients, and the faults with their times.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::ensemble::{FOLLOWERS, TIMEOUT};

/// A rule that the node breaks. The simulation has to find the violations that follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weakness {
    None,
    /// An answered request holds for its lease, which is at most half of the session timeout.
    NoEvidence,
    /// A list from before the creation decides.
    NoListAfterTheCreation,
    /// A client learns of the limit of a server when the server has shortened its session.
    NoLimitBeforeTheSession,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    PauseClient(usize, Duration),
    PauseServer(usize, Duration),
    /// The connection of a client ends.
    Cut(usize),
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) weakness: Weakness,
    /// The drift of each client's clock, in millionths.
    pub(super) clients: Vec<i32>,
    pub(super) workers: usize,
    pub(super) keys: usize,
    /// Whether the last follower allows only short sessions.
    pub(super) is_limited: bool,
    /// The faults and the pauses before them.
    pub(super) faults: Vec<(Duration, Fault)>,
}

impl Plan {
    pub(super) fn from_seed(seed: u64, weakness: Weakness) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let clients: Vec<_> =
            (0..random.random_range(2..=3)).map(|_| random.random_range(-4000..=4000)).collect();
        let mut faults = Vec::new();
        let pause = random.random_range(200..=1500);
        for _ in 0..10 {
            let before = Duration::from_millis(random.random_range(0..=pause));
            let client = random.random_range(0..clients.len());
            let server = random.random_range(0..=FOLLOWERS);
            let time = TIMEOUT.mul_f64(random.random_range(0.01..1.3));
            match random.random_range(0..12) {
                0..3 => faults.push((before, Fault::PauseClient(client, time))),
                3..5 => faults.push((before, Fault::PauseServer(server, time))),
                5 => faults.push((before, Fault::Cut(client))),
                10.. => {
                    // A client pauses while it looks for a server.
                    let after = Duration::from_millis(random.random_range(0..=120));
                    let time = TIMEOUT.mul_f64(random.random_range(0.3..0.8));
                    faults.push((before, Fault::Cut(client)));
                    faults.push((after, Fault::PauseClient(client, time)));
                }
                _ => {
                    // A follower pauses after it has forwarded some requests of a client whose session is about to end.
                    let silence = TIMEOUT.mul_f64(random.random_range(0.85..1.1));
                    let after = silence + Duration::from_millis(random.random_range(20..=100));
                    let follower = random.random_range(1..=FOLLOWERS);
                    faults.push((before, Fault::PauseClient(client, silence)));
                    faults.push((after, Fault::PauseServer(follower, TIMEOUT / 2)));
                }
            }
        }
        let (workers, keys) = (random.random_range(1..=3), random.random_range(1..=2));
        let is_limited = weakness == Weakness::NoLimitBeforeTheSession || random.random_ratio(1, 3);
        Self { seed, weakness, clients, workers, keys, is_limited, faults }
    }
}
