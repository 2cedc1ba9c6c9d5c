//! The sums over many storms.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Report;

/// The sums over many storms. `Display` writes them in one line.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    seeds: Option<(u64, u64)>,
    storms: usize,
    grants: usize,
    faults: usize,
    overlaps: usize,
    violations: usize,
    refusals: BTreeMap<String, usize>,
    longest_wait: Duration,
    longest_excess: Duration,
}

impl Totals {
    /// Adds the result of one storm.
    pub fn add(&mut self, report: &Report) {
        let first = self.seeds.map_or(report.seed, |(first, _)| first);
        self.seeds = Some((first, report.seed));
        self.storms += 1;
        self.grants += report.grants();
        self.faults += report.fault_count();
        self.overlaps += report.overlaps();
        self.violations += report.violations.len();
        for (reason, count) in &report.findings.refusals {
            *self.refusals.entry(reason.clone()).or_default() += count;
        }
        self.longest_wait = self.longest_wait.max(report.findings.longest_wait);
        self.longest_excess = self.longest_excess.max(report.findings.longest_excess);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.seeds.unwrap_or_default();
        write!(f, "storms: {} (seeds {first} to {last}), ", self.storms)?;
        write!(f, "{} grants, {} faults, refusals: ", self.grants, self.faults)?;
        for (reason, count) in &self.refusals {
            write!(f, "{count} {reason}, ")?;
        }
        write!(
            f,
            "longest wait {:?}, largest excess over the allowed time {:?}, {} overlaps, {} violations",
            self.longest_wait, self.longest_excess, self.overlaps, self.violations
        )
    }
}
