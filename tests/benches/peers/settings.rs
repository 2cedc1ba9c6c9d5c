//! Settings of the benchmark.

use std::time::Duration;

/// The lease of every lock.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The settings from the command line and the environment.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The number of rounds.
    pub(crate) rounds: usize,
    /// The duration of one measurement.
    pub(crate) slice: Duration,
    /// The names of the rows to measure; empty for all rows.
    pub(crate) rows: Vec<String>,
}

impl Settings {
    pub(crate) fn read() -> Self {
        let number = |name, default| {
            std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
        };
        Self {
            rounds: usize::try_from(number("PEERS_ROUNDS", 21)).expect("a number of rounds"),
            slice: Duration::from_millis(number("PEERS_SLICE_MS", 100)),
            // Cargo passes options of the standard benchmark harness, such as `--bench`.
            rows: std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect(),
        }
    }

    /// Returns the number of rounds, at most `most`, for measurements that take long.
    pub(crate) fn rounds_up_to(&self, most: usize) -> usize {
        self.rounds.min(most)
    }

    pub(crate) fn wants(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|wanted| row == wanted)
    }
}
