//! What a history proves, or disproves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::event::{Event, What};
use super::hold::{Hold, holds, overlaps, stale_fencing};

/// An attempt that took longer than it was allowed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// Whose.
    pub process: u32,
    /// Which.
    pub number: u64,
    /// How long it was allowed to take.
    pub within: Duration,
    /// How long it took, without the time in which its process did not run.
    pub took: Duration,
}

/// What a history says.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Holds of one key that were believed in at the same time.
    pub overlaps: Vec<(Hold, Hold)>,
    /// Holds of one key, the later of which has a fencing token that is not larger.
    pub fencing: Vec<(Hold, Hold)>,
    /// Attempts that took too long.
    pub late: Vec<Late>,
    /// Attempts that had no end, by process and number.
    pub unanswered: Vec<(u32, u64)>,
    /// All beliefs.
    pub holds: Vec<Hold>,
    /// How many attempts were refused, by reason.
    pub refusals: BTreeMap<String, usize>,
    /// How many requests their callers dropped.
    pub abandoned: usize,
    /// By how much the slowest attempt exceeded its time.
    pub longest_excess: Duration,
    /// The longest time that an attempt took.
    pub longest_wait: Duration,
}

impl Findings {
    /// Reads a history to its end. An attempt may take `tolerance` longer than it is allowed to.
    pub fn of(events: &[Event], tolerance: Duration) -> Self {
        let holds = holds(events);
        let mut findings = Self {
            overlaps: overlaps(&holds),
            fencing: stale_fencing(&holds),
            holds,
            ..Self::default()
        };
        findings.waits(events, tolerance);
        findings
    }

    /// Everything that must not be, in words; empty for a history that keeps the promises. Processes
    /// that were `killed` may have attempts without an end.
    pub fn violations(&self, killed: &BTreeSet<u32>) -> Vec<String> {
        let overlaps = self.overlaps.iter().map(|(a, b)| format!("held twice: {a:?} and {b:?}"));
        let fencing = self.fencing.iter().map(|(a, b)| format!("fencing: {a:?} before {b:?}"));
        let late = self.late.iter().map(|late| format!("too late: {late:?}"));
        let unanswered = self.unanswered.iter().filter(|(process, _)| !killed.contains(process));
        let unanswered = unanswered.map(|attempt| format!("never answered: {attempt:?}"));
        overlaps.chain(fencing).chain(late).chain(unanswered).collect()
    }

    fn waits(&mut self, events: &[Event], tolerance: Duration) {
        let mut open: BTreeMap<(u32, u64), (u64, Duration)> = BTreeMap::new();
        let pauses = pauses(events);
        for event in events {
            let attempt = (event.process, event.number);
            match &event.what {
                What::Asked { within, .. } => {
                    open.insert(attempt, (event.at, *within));
                    continue;
                }
                What::Refused { reason } => *self.refusals.entry(reason.clone()).or_default() += 1,
                What::Granted { .. } => {}
                What::Abandoned => {
                    self.abandoned += 1;
                    // Its caller ended the waiting.
                    open.remove(&attempt);
                }
                _ => continue,
            }
            let Some((asked, within)) = open.remove(&attempt) else { continue };
            let held_up = pauses.get(&event.process).map_or(0, |pauses| {
                pauses.iter().map(|pause| common(*pause, (asked, event.at))).sum()
            });
            let took = event.at.saturating_sub(asked).saturating_sub(held_up);
            let took = Duration::from_nanos(took);
            self.longest_wait = self.longest_wait.max(took);
            self.longest_excess = self.longest_excess.max(took.saturating_sub(within));
            if took > within + tolerance {
                let (process, number) = attempt;
                self.late.push(Late { process, number, within, took });
            }
        }
        self.unanswered = open.into_keys().collect();
    }
}

/// When each process did not run.
fn pauses(events: &[Event]) -> HashMap<u32, Vec<(u64, u64)>> {
    let mut pauses: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
    for event in events {
        if let What::HeldUp { since } = event.what {
            pauses.entry(event.process).or_default().push((since, event.at));
        }
    }
    pauses
}

/// How long two stretches of time have in common.
fn common(one: (u64, u64), other: (u64, u64)) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn event(at: u64, number: u64, what: What) -> Event {
        Event { at, process: 1, number, what }
    }

    fn asked(at: u64, within: Duration) -> Event {
        event(at, 1, What::Asked { within, key: "a".to_owned() })
    }

    fn granted(at: u64, believed_until: u64) -> Event {
        event(at, 1, What::Granted { believed_until, fencing: None, key: "a".to_owned() })
    }

    #[test]
    fn an_attempt_that_takes_too_long_is_found() {
        let late = |events: &[Event]| Findings::of(events, SECOND / 10).late.len();
        let nanos = |millis: u64| millis * 1_000_000;
        let refused = |millis| event(nanos(millis), 1, What::Refused { reason: String::new() });
        assert_eq!(late(&[asked(0, SECOND), refused(1100)]), 0);
        assert_eq!(late(&[asked(0, SECOND), refused(1101)]), 1);
        assert_eq!(late(&[asked(0, SECOND), granted(nanos(1101), nanos(1102))]), 1);
        let held_up = event(nanos(900), 0, What::HeldUp { since: nanos(800) });
        assert_eq!(late(&[asked(0, SECOND), held_up.clone(), refused(1200)]), 0, "not its fault");
        assert_eq!(late(&[asked(0, SECOND), held_up, refused(1201)]), 1);
    }

    #[test]
    fn an_attempt_without_an_end_is_found_unless_its_process_was_killed() {
        let findings = Findings::of(&[asked(0, SECOND)], SECOND);
        assert_eq!(findings.violations(&BTreeSet::new()).len(), 1);
        assert_eq!(findings.violations(&BTreeSet::from([1])), [""; 0]);
        // Whenever its caller gave it up.
        let abandoned = event(5_000_000_000, 1, What::Abandoned);
        let findings = Findings::of(&[asked(0, SECOND), abandoned], SECOND);
        assert_eq!(findings.violations(&BTreeSet::new()), [""; 0]);
    }
}
