//! The result of a storm.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::{Client, Schedule};
use crate::history::{Event, Findings, What};

/// How much longer than its wait time and its node timeout an attempt may take. The margin is for a process
/// that was stopped for a short time, and for a busy machine with two cores.
const TOLERANCE: Duration = Duration::from_secs(1);

/// The result of a storm.
#[derive(Debug, Clone)]
pub struct Report {
    /// The seed of the schedule.
    pub seed: u64,
    /// The number of nodes.
    pub nodes: usize,
    /// The behaviour of the clients.
    pub client: Client,
    /// Whether the clients had the restart guard.
    pub restart_guard: bool,
    /// The findings in the history.
    pub findings: Findings,
    /// For each fault, by name: how often it was made, and how many locks were granted while it lasted.
    pub faults: BTreeMap<String, (usize, usize)>,
    /// The number of processes that got a contended lock.
    pub holders: usize,
    /// Descriptions of all violations.
    pub violations: Vec<String>,
}

impl Report {
    pub(super) fn new(
        schedule: &Schedule,
        client: Client,
        events: &[Event],
        killed: &BTreeSet<u32>,
        mut violations: Vec<String>,
    ) -> Self {
        let findings = Findings::of(events, TOLERANCE);
        violations.extend(findings.violations(killed));
        let holders: BTreeSet<u32> = findings.holds.iter().map(|hold| hold.process).collect();
        let mut faults: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for event in events {
            if let What::Fault { since, name } = &event.what {
                let (count, granted) = faults.entry(name.clone()).or_default();
                *count += 1;
                let meanwhile =
                    findings.holds.iter().filter(|hold| (*since..event.at).contains(&hold.start));
                *granted += meanwhile.count();
            }
        }
        let (seed, nodes, holders) = (schedule.seed, schedule.nodes, holders.len());
        let restart_guard = schedule.restart_guard;
        Self { seed, nodes, client, restart_guard, findings, faults, holders, violations }
    }

    /// Returns the number of faults.
    pub fn fault_count(&self) -> usize {
        self.faults.values().map(|(count, _)| count).sum()
    }

    /// Returns the number of granted locks.
    pub fn grants(&self) -> usize {
        self.findings.holds.len()
    }

    /// Returns the number of pairs of holds that overlap.
    pub fn overlaps(&self) -> usize {
        self.findings.overlaps.len()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, nodes, client, findings, faults, holders, violations, .. } = self;
        let refusals: usize = findings.refusals.values().sum();
        let guard = if self.restart_guard { "with" } else { "without" };
        writeln!(f, "seed {seed}: {nodes} nodes, clients {client:?}, {guard} restart guard")?;
        writeln!(f, "  {} grants to {holders} processes, {refusals} refusals", self.grants())?;
        for (reason, count) in &findings.refusals {
            writeln!(f, "    {count} {reason}")?;
        }
        writeln!(f, "  {} requests dropped by their callers", findings.abandoned)?;
        writeln!(
            f,
            "  longest wait {:?}, largest excess over the allowed time {:?}",
            findings.longest_wait, findings.longest_excess
        )?;
        writeln!(f, "  longest wait for a grant {:?}", findings.longest_waits)?;
        writeln!(f, "  {} faults", self.fault_count())?;
        for (name, (count, granted)) in faults {
            writeln!(f, "    {count} {name} ({granted} grants while it lasted)")?;
        }
        writeln!(f, "  {} overlaps, {} violations", self.overlaps(), violations.len())?;
        for violation in violations.iter().take(20) {
            writeln!(f, "    {violation}")?;
        }
        Ok(())
    }
}
