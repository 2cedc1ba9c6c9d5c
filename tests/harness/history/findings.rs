//! The findings of the check of a history.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::event::{Event, What};
use super::hold::{Hold, holds, overlaps, stale_fencing, too_many};

/// The prefix of the keys whose callers wait until they have them.
const PATIENT_KEYS: &str = "patient:";
/// While locks are granted at all, many callers get one in this time, in nanoseconds.
const LEAST_OUTAGE: u64 = 100_000_000;
/// After a fault, the clients connect again, and the leases of lost locks end, in nanoseconds.
const RECOVERY: u64 = 1_000_000_000;

/// An attempt that took longer than allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// The id of the process.
    pub process: u32,
    /// The number of the attempt.
    pub number: u64,
    /// The allowed time.
    pub within: Duration,
    /// The time that the attempt took, without the pauses of its process.
    pub took: Duration,
}

/// The findings in a history.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Pairs of holds of one key that overlap in time.
    pub overlaps: Vec<(Hold, Hold)>,
    /// Pairs of holds of one key, of which the later one began although no permit was left.
    pub too_many: Vec<(Hold, Hold)>,
    /// Pairs of holds of one key in which the later hold has no larger fencing token.
    pub fencing: Vec<(Hold, Hold)>,
    /// Attempts that took longer than allowed.
    pub late: Vec<Late>,
    /// The process and the number of each attempt without an end.
    pub unanswered: Vec<(u32, u64)>,
    /// All holds.
    pub holds: Vec<Hold>,
    /// The number of failed attempts, by reason.
    pub refusals: BTreeMap<String, usize>,
    /// The number of attempts that their callers dropped.
    pub abandoned: usize,
    /// The largest time by which an attempt exceeded its allowed time.
    pub longest_excess: Duration,
    /// The longest time that an attempt took.
    pub longest_wait: Duration,
    /// The longest time that a granted attempt took, by the mode of its lock.
    pub longest_waits: BTreeMap<&'static str, Duration>,
}

impl Findings {
    /// Checks a whole history. Attempts may exceed their allowed time by `tolerance`.
    pub fn of(events: &[Event], tolerance: Duration) -> Self {
        let holds = holds(events);
        let mut findings = Self {
            overlaps: overlaps(&holds),
            too_many: too_many(&holds),
            fencing: stale_fencing(&holds),
            holds,
            ..Self::default()
        };
        findings.check_attempts(events, tolerance);
        findings
    }

    /// Describes each violation; empty for a history without violations. Processes in `killed` may have
    /// attempts without an end.
    pub fn violations(&self, killed: &BTreeSet<u32>) -> Vec<String> {
        let overlaps = self.overlaps.iter().map(|(a, b)| format!("held twice: {a:?} and {b:?}"));
        let permits = self.too_many.iter();
        let permits = permits.map(|(a, b)| format!("no permit left: {a:?} and {b:?}"));
        let fencing = self.fencing.iter().map(|(a, b)| format!("fencing: {a:?} before {b:?}"));
        let late = self.late.iter().map(|late| format!("too late: {late:?}"));
        let unanswered = self.unanswered.iter().filter(|(process, _)| !killed.contains(process));
        let unanswered = unanswered.map(|attempt| format!("never answered: {attempt:?}"));
        overlaps.chain(permits).chain(fencing).chain(late).chain(unanswered).collect()
    }

    /// Fills in the findings about the durations and the ends of attempts.
    fn check_attempts(&mut self, events: &[Event], tolerance: Duration) {
        let mut open: BTreeMap<(u32, u64), (u64, Duration, bool)> = BTreeMap::new();
        let pauses = pauses(events);
        let outages = outages(events);
        for event in events {
            let attempt = (event.process, event.number);
            match &event.what {
                What::Asked { within, key } => {
                    let is_patient = key.starts_with(PATIENT_KEYS);
                    open.insert(attempt, (event.at, *within, is_patient));
                    continue;
                }
                What::Refused { reason } => *self.refusals.entry(reason.clone()).or_default() += 1,
                What::Granted { .. } => {}
                What::Abandoned => {
                    self.abandoned += 1;
                    // The caller ended the attempt, so its duration says nothing about the library. A patient caller
                    // ends its attempt at the end of the storm, and may not have waited too long before.
                    if open.get(&attempt).is_some_and(|(_, _, is_patient)| !is_patient) {
                        open.remove(&attempt);
                    }
                }
                _ => continue,
            }
            let Some((asked, within, is_patient)) = open.remove(&attempt) else { continue };
            let no_pauses = Vec::new();
            let held_up = pauses.get(&event.process).unwrap_or(&no_pauses).iter();
            let outages = outages.iter().filter(|_| is_patient);
            let excused = held_up.chain(outages);
            let excused = excused.map(|period| overlap(*period, (asked, event.at))).sum();
            let took = event.at.saturating_sub(asked).saturating_sub(excused);
            let took = Duration::from_nanos(took);
            self.longest_wait = self.longest_wait.max(took);
            if let What::Granted { sharing, .. } = &event.what {
                let longest = self.longest_waits.entry(sharing.mode()).or_default();
                *longest = took.max(*longest);
            }
            self.longest_excess = self.longest_excess.max(took.saturating_sub(within));
            if took > within + tolerance {
                let (process, number) = attempt;
                self.late.push(Late { process, number, within, took });
            }
        }
        self.unanswered = open.into_keys().collect();
    }
}

/// Returns the periods under faults in which no process was granted any lock.
fn outages(events: &[Event]) -> Vec<(u64, u64)> {
    let faults: Vec<(u64, u64)> = events
        .iter()
        .filter_map(|event| match event.what {
            What::Fault { since, .. } => Some((since, event.at + RECOVERY)),
            _ => None,
        })
        .collect();
    let mut grants: Vec<u64> = events
        .iter()
        .filter(|event| matches!(event.what, What::Granted { .. }))
        .map(|event| event.at)
        .collect();
    let last = events.iter().map(|event| event.at).max().unwrap_or_default();
    grants.push(last);
    grants.sort_unstable();
    let pairs = grants.windows(2).map(|pair| (pair[0], pair[1]));
    let gaps = pairs.filter(|(from, to)| to - from > LEAST_OUTAGE);
    // Faults overlap each other, so a gap counts whole if a fault touches it.
    gaps.filter(|gap| faults.iter().any(|fault| overlap(*gap, *fault) > 0)).collect()
}

/// Returns the pauses of each process: times in which its tasks did not run.
fn pauses(events: &[Event]) -> HashMap<u32, Vec<(u64, u64)>> {
    let mut pauses: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
    for event in events {
        if let What::HeldUp { since } = event.what {
            pauses.entry(event.process).or_default().push((since, event.at));
        }
    }
    pauses
}

/// Returns for how long two periods overlap.
fn overlap(one: (u64, u64), other: (u64, u64)) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

#[cfg(test)]
mod tests {
    use super::super::event::Sharing;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn event(at: u64, number: u64, what: What) -> Event {
        Event { at, process: 1, number, what }
    }

    fn asked(at: u64, within: Duration) -> Event {
        event(at, 1, What::Asked { within, key: "a".to_owned() })
    }

    fn granted(at: u64, believed_until: u64) -> Event {
        event(
            at,
            1,
            What::Granted {
                believed_until,
                fencing: None,
                sharing: Sharing::Exclusive,
                key: "a".to_owned(),
            },
        )
    }

    #[test]
    fn an_attempt_that_exceeds_its_time_is_late() {
        let late = |events: &[Event]| Findings::of(events, SECOND / 10).late.len();
        let nanos = |millis: u64| millis * 1_000_000;
        let refused = |millis| event(nanos(millis), 1, What::Refused { reason: String::new() });
        assert_eq!(late(&[asked(0, SECOND), refused(1100)]), 0);
        assert_eq!(late(&[asked(0, SECOND), refused(1101)]), 1);
        assert_eq!(late(&[asked(0, SECOND), granted(nanos(1101), nanos(1102))]), 1);
        let held_up = event(nanos(900), 0, What::HeldUp { since: nanos(800) });
        assert_eq!(late(&[asked(0, SECOND), held_up.clone(), refused(1200)]), 0, "a pause");
        assert_eq!(late(&[asked(0, SECOND), held_up, refused(1201)]), 1);
    }

    #[test]
    fn a_patient_caller_is_late_unless_nobody_was_granted_a_lock() {
        let millis = |millis: u64| millis * 1_000_000;
        let patient =
            |at, within| event(at, 1, What::Asked { within, key: format!("{PATIENT_KEYS}0") });
        let fault = What::Fault { since: millis(500), name: "freeze".to_owned() };
        let late = |granted: &[u64], fault: Option<What>| {
            let mut events = vec![patient(0, SECOND)];
            let other =
                |at: &u64| Event { number: 2, ..self::granted(millis(*at), millis(at + 1)) };
            events.extend(granted.iter().map(other));
            events.extend(fault.map(|fault| event(millis(900), 0, fault)));
            events.push(event(millis(3000), 1, What::Abandoned));
            Findings::of(&events, SECOND / 10).late.len()
        };
        let often: Vec<u64> = (0..60).map(|count| count * 50).collect();
        assert_eq!(late(&often, Some(fault.clone())), 1);
        assert_eq!(late(&[0, 2000], Some(fault)), 0, "nobody was granted a lock");
        assert_eq!(late(&[0, 2000], None), 1, "without a fault");
    }

    #[test]
    fn an_attempt_without_an_end_is_a_violation_unless_its_process_was_killed() {
        let findings = Findings::of(&[asked(0, SECOND)], SECOND);
        assert_eq!(findings.violations(&BTreeSet::new()).len(), 1);
        assert_eq!(findings.violations(&BTreeSet::from([1])), [""; 0]);
        // A dropped attempt is not late, however long it took.
        let abandoned = event(5_000_000_000, 1, What::Abandoned);
        let findings = Findings::of(&[asked(0, SECOND), abandoned], SECOND);
        assert_eq!(findings.violations(&BTreeSet::new()), [""; 0]);
    }
}
