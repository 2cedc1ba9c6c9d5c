//! How long everything takes.

use std::time::Duration;

/// The lease of every lock.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// What the command line and the environment say.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How often everything is measured, one after the other.
    pub(crate) rounds: usize,
    /// How long one measurement takes.
    pub(crate) slice: Duration,
    /// Which rows are measured; all, if none is named.
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
            // Cargo adds options for a harness that is not there.
            rows: std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect(),
        }
    }

    /// As many rounds as there may be of something that takes long.
    pub(crate) fn rounds_up_to(&self, most: usize) -> usize {
        self.rounds.min(most)
    }

    pub(crate) fn wants(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|wanted| row == wanted)
    }
}
