//! Finds locks that were granted without a quorum.

use std::collections::HashMap;

use crate::history::{Event, Sharing, What};

/// A period in which a client could not reach a quorum of the nodes, on the clock of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CutOff {
    pub(super) client: usize,
    pub(super) since: u64,
    pub(super) until: u64,
}

/// For how long after its grant a process hands an exclusive lock over to its next waiter without asking the nodes, in
/// nanoseconds.
const HAND_OVER: u64 = 100_000_000;

/// One attempt of a process.
struct Attempt<'a> {
    key: &'a str,
    asked: u64,
    /// The time of its grant, and whether the lock is exclusive.
    granted: Option<(u64, bool)>,
    abandoned: Option<u64>,
}

/// Returns a violation for each lock that a client requested and got while it was cut off. `clients` maps
/// process ids to clients. A lock requested before the cut does not count: it may have been granted before
/// the cut too, and recorded later. An exclusive lock does not count either if the process may have handed it over from
/// another caller.
pub(super) fn granted_on_the_minority_side(
    events: &[Event],
    clients: &HashMap<u32, usize>,
    cut_off: &[CutOff],
) -> Vec<String> {
    let mut found = Vec::new();
    for (process, attempts) in attempts(events) {
        let Some(client) = clients.get(&process) else { continue };
        for (number, attempt) in &attempts {
            let Some((at, is_exclusive)) = attempt.granted else { continue };
            let without_quorum = |cut: &&CutOff| {
                cut.client == *client && cut.since <= attempt.asked && at <= cut.until
            };
            let Some(cut) = cut_off.iter().find(without_quorum) else { continue };
            let mut others = attempts.iter().filter(|(other, _)| *other != number);
            if !is_exclusive || !others.any(|(_, other)| may_hand_over(other, attempt.key, at, cut))
            {
                let key = attempt.key;
                let attempt = (process, number);
                found.push(format!("granted without a quorum: {key} to {attempt:?}, {cut:?}"));
            }
        }
    }
    found
}

/// Returns whether a caller may have got this key before the cut, and have handed it over by the time `until`. A caller
/// that has dropped its request may have got the lock without recording it.
fn may_hand_over(caller: &Attempt<'_>, key: &str, until: u64, cut: &CutOff) -> bool {
    let earliest = cut.since.saturating_sub(HAND_OVER);
    let got = caller
        .granted
        .is_some_and(|(at, is_exclusive)| is_exclusive && (earliest..until).contains(&at));
    let dropped =
        caller.asked < until && caller.abandoned.is_some_and(|abandoned| cut.since <= abandoned);
    caller.key == key && (got || dropped)
}

/// Returns the attempts of each process, by their numbers.
fn attempts(events: &[Event]) -> HashMap<u32, HashMap<u64, Attempt<'_>>> {
    let mut processes: HashMap<u32, HashMap<u64, Attempt<'_>>> = HashMap::new();
    for event in events {
        let attempts = processes.entry(event.process).or_default();
        if let What::Asked { key, .. } = &event.what {
            let attempt = Attempt { key, asked: event.at, granted: None, abandoned: None };
            attempts.insert(event.number, attempt);
        }
        let Some(attempt) = attempts.get_mut(&event.number) else { continue };
        match &event.what {
            What::Granted { sharing, .. } => {
                attempt.granted = Some((event.at, *sharing == Sharing::Exclusive));
            }
            What::Abandoned => attempt.abandoned = Some(event.at),
            _ => {}
        }
    }
    processes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CLIENT: usize = 2;
    const CUT: CutOff = CutOff { client: CLIENT, since: 10 + HAND_OVER, until: 20 + HAND_OVER };

    fn event(at: u64, number: u64, what: What) -> Event {
        Event { at, process: 7, number, what }
    }

    fn asked(at: u64, number: u64, key: &str) -> Event {
        event(at, number, What::Asked { within: Duration::ZERO, key: key.to_owned() })
    }

    fn granted(at: u64, number: u64, sharing: Sharing) -> Event {
        let key = "a".to_owned();
        event(at, number, What::Granted { believed_until: u64::MAX, fencing: None, sharing, key })
    }

    fn found(events: &[Event], cut: CutOff) -> usize {
        granted_on_the_minority_side(events, &HashMap::from([(7, CLIENT)]), &[cut]).len()
    }

    #[test]
    fn a_lock_requested_and_granted_without_a_quorum_is_found() {
        let found = |since_cut, until_cut, cut| {
            let (asked_at, granted_at) = (CUT.since + since_cut, CUT.until + until_cut - 1);
            let events = [asked(asked_at - 1, 1, "a"), granted(granted_at, 1, Sharing::Exclusive)];
            found(&events, cut)
        };
        assert_eq!(found(1, 1, CUT), 1);
        assert_eq!(found(0, 1, CUT), 0, "requested before the cut");
        assert_eq!(found(1, 2, CUT), 0, "granted after the cut");
        assert_eq!(found(1, 1, CutOff { client: 1, ..CUT }), 0, "another client is cut off");
    }

    #[test]
    fn a_lock_that_another_caller_may_have_handed_over_is_not_found() {
        use Sharing::{Exclusive, Readers};

        let later = |sharing| [asked(CUT.since, 2, "a"), granted(CUT.until, 2, sharing)];
        let found = |earlier: [Event; 2], sharing| found(&[earlier, later(sharing)].concat(), CUT);
        let grant = |at| [asked(0, 1, "a"), granted(at, 1, Exclusive)];
        assert_eq!(found(grant(CUT.since - HAND_OVER), Exclusive), 0);
        assert_eq!(found(grant(CUT.since - HAND_OVER - 1), Exclusive), 1, "too long ago");
        assert_eq!(found(grant(CUT.until + 1), Exclusive), 1, "granted later");
        assert_eq!(found(grant(CUT.since), Readers), 1, "shared locks are not handed over");
        let shared = [asked(0, 1, "a"), granted(CUT.since, 1, Readers)];
        assert_eq!(found(shared, Exclusive), 1, "shared locks are not handed over");
        let other = [asked(0, 1, "b"), granted(CUT.since, 1, Exclusive)];
        assert_eq!(found(other, Exclusive), 1, "another key");

        let dropped = |from, at| [asked(from, 1, "a"), event(at, 1, What::Abandoned)];
        assert_eq!(found(dropped(0, CUT.since), Exclusive), 0);
        assert_eq!(found(dropped(0, CUT.since - 1), Exclusive), 1, "dropped before the cut");
        assert_eq!(found(dropped(CUT.until, CUT.until + 1), Exclusive), 1, "requested later");
    }
}
