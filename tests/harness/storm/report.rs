//! What came of a storm.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::{Client, LONGEST_LEASE, Schedule};
use crate::history::{Event, Findings, Hold, What};

/// How much longer than its wait time and its nodes' timeout an attempt may take: the grace for a
/// process that was held up itself, and what a busy machine with two cores adds.
const TOLERANCE: Duration = Duration::from_millis(200);

/// What came of a storm.
#[derive(Debug, Clone)]
pub struct Report {
    /// The seed of its schedule.
    pub seed: u64,
    /// How many nodes there were.
    pub nodes: usize,
    /// How the clients behaved.
    pub client: Client,
    /// Whether they had the restart guard.
    pub restart_guard: bool,
    /// What the history says.
    pub findings: Findings,
    /// How often each fault was made, and how many locks were granted meanwhile.
    pub faults: BTreeMap<String, (usize, usize)>,
    /// How many locks were granted when the longest lease was over after the first fault.
    pub granted_again: usize,
    /// How many processes were granted a lock that others wanted too.
    pub holders: usize,
    /// All that must not be.
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
        let is_fault = |event: &&Event| matches!(event.what, What::Fault { .. });
        let first = events.iter().find(is_fault).map_or(u64::MAX, |fault| fault.at);
        let lease = u64::try_from(LONGEST_LEASE.as_nanos()).unwrap_or_default();
        let later = |hold: &&Hold| hold.start > first.saturating_add(lease);
        let granted_again = findings.holds.iter().filter(later).count();
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
        Self {
            seed,
            nodes,
            client,
            restart_guard,
            findings,
            faults,
            granted_again,
            holders,
            violations,
        }
    }

    /// How many faults were made.
    pub fn fault_count(&self) -> usize {
        self.faults.values().map(|(count, _)| count).sum()
    }

    /// How many locks were granted.
    pub fn grants(&self) -> usize {
        self.findings.holds.len()
    }

    /// How many pairs of holds overlap.
    pub fn overlaps(&self) -> usize {
        self.findings.overlaps.len()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, nodes, client, findings, faults, holders, violations, .. } = self;
        let refusals: usize = findings.refusals.values().sum();
        let guard = if self.restart_guard { "with" } else { "without" };
        writeln!(f, "seed {seed}: {nodes} nodes, clients {client}, {guard} restart guard")?;
        writeln!(f, "  {} grants to {holders} processes, {refusals} refusals", self.grants())?;
        for (reason, count) in &findings.refusals {
            writeln!(f, "    {count} {reason}")?;
        }
        writeln!(f, "  {} of them a lease after the first fault or later", self.granted_again)?;
        writeln!(f, "  {} requests dropped by their callers", findings.abandoned)?;
        writeln!(
            f,
            "  longest wait {:?}, {:?} beyond what is allowed",
            findings.longest_wait, findings.longest_excess
        )?;
        writeln!(f, "  {} faults", self.fault_count())?;
        for (name, (count, granted)) in faults {
            writeln!(f, "    {count} {name} ({granted} grants meanwhile)")?;
        }
        writeln!(f, "  {} overlaps, {} violations", self.overlaps(), violations.len())?;
        for violation in violations.iter().take(20) {
            writeln!(f, "    {violation}")?;
        }
        Ok(())
    }
}
