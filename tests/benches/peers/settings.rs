//! Settings of the benchmark.

use std::process::exit;
use std::sync::Mutex;
use std::time::Duration;

/// The lease of every lock.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The smallest number of rounds. A median of fewer rounds varies too much between two runs. Rows that take
/// long use this number.
pub(crate) const LEAST_ROUNDS: usize = 15;

/// The settings from the command line and the environment.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The number of rounds.
    pub(crate) rounds: usize,
    /// The duration of one measurement.
    pub(crate) slice: Duration,
    /// The names of the rows to measure; empty for all rows.
    rows: Vec<String>,
    /// The names of all rows so far.
    known: Mutex<Vec<&'static str>>,
}

impl Settings {
    /// Reads the settings. Ends the process with an explanation if one of them is wrong.
    pub(crate) fn read() -> Self {
        let rounds = number("PEERS_ROUNDS", 21);
        if rounds < LEAST_ROUNDS {
            refuse(&format!("PEERS_ROUNDS is {rounds}; it must be at least {LEAST_ROUNDS}"));
        }
        // Cargo passes options of the standard benchmark harness, such as `--bench`.
        let rows = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
        let slice = Duration::from_millis(number("PEERS_SLICE_MS", 100));
        Self { rounds, slice, rows: rows.collect(), known: Mutex::default() }
    }

    /// Returns whether a row is to be measured.
    pub(crate) fn wants(&self, row: &'static str) -> bool {
        self.known.lock().expect("no panic with the mutex").push(row);
        self.rows.is_empty() || self.rows.iter().any(|wanted| row == wanted)
    }

    /// Ends the process with an explanation if there is no row for one of the names. Call it after the last row.
    pub(crate) fn check_names(&self) {
        let known = self.known.lock().expect("no panic with the mutex");
        if let Some(row) = self.rows.iter().find(|row| !known.contains(&&***row)) {
            refuse(&format!("there is no row {row}; the rows are {}", known.join(", ")));
        }
    }
}

fn number<T: std::str::FromStr>(variable: &str, default: T) -> T {
    let Ok(value) = std::env::var(variable) else { return default };
    value.parse().unwrap_or_else(|_| refuse(&format!("{variable} is {value}, not a number")))
}

fn refuse(reason: &str) -> ! {
    eprintln!("{reason}.");
    exit(2)
}
