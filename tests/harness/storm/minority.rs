//! Finds locks that were granted without a quorum.

use std::collections::HashMap;

use crate::history::{Event, PATIENT_KEYS, Sharing, What};

/// A period in which a client could not reach a quorum of the nodes, on the clock of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CutOff {
    pub(super) client: usize,
    pub(super) since: u64,
    pub(super) until: u64,
}

/// For how long after their grant a process hands an exclusive lock over to its next waiter without asking the nodes, in
/// nanoseconds. Only the patient keys have several waiters in a process.
const HAND_OVER: u64 = 100_000_000;

/// Returns a violation for each lock that a client requested and got while it was cut off. `clients` maps
/// process ids to clients. A lock requested before the cut does not count: it may have been granted before
/// the cut too, and recorded later.
pub(super) fn granted_on_the_minority_side(
    events: &[Event],
    clients: &HashMap<u32, usize>,
    cut_off: &[CutOff],
) -> Vec<String> {
    let mut asked: HashMap<(u32, u64), u64> = HashMap::new();
    let mut found = Vec::new();
    for event in events {
        let attempt = (event.process, event.number);
        match &event.what {
            What::Asked { .. } => {
                asked.insert(attempt, event.at);
            }
            What::Granted { key, sharing, .. } => {
                let Some(asked) = asked.get(&attempt) else { continue };
                let Some(client) = clients.get(&event.process) else { continue };
                let is_handed_over =
                    *sharing == Sharing::Exclusive && key.starts_with(PATIENT_KEYS);
                let hand_over = if is_handed_over { HAND_OVER } else { 0 };
                let without_quorum = |cut: &&CutOff| {
                    let since = cut.since.saturating_add(hand_over);
                    cut.client == *client && since <= *asked && event.at <= cut.until
                };
                if let Some(cut) = cut_off.iter().find(without_quorum) {
                    found.push(format!("granted without a quorum: {key} to {attempt:?}, {cut:?}"));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lock_requested_and_granted_without_a_quorum_is_found() {
        let attempt = |key: &str, asked, granted| {
            let key = key.to_owned();
            let asking = What::Asked { within: Duration::ZERO, key: key.clone() };
            let granting = What::Granted {
                believed_until: 100,
                fencing: None,
                sharing: Sharing::Exclusive,
                key,
            };
            [(asked, asking), (granted, granting)].map(|(at, what)| Event {
                at,
                process: 7,
                number: 1,
                what,
            })
        };
        let clients = HashMap::from([(7, 2)]);
        let found_at = |key, asked, granted, client| {
            let cut_off = [CutOff { client, since: 10, until: 20 + HAND_OVER }];
            granted_on_the_minority_side(&attempt(key, asked, granted), &clients, &cut_off).len()
        };
        let found = |asked, granted, client| found_at("a", asked, granted, client);
        assert_eq!(found(10, 20, 2), 1);
        assert_eq!(found(9, 20, 2), 0, "requested before the cut");
        assert_eq!(found(10, 21 + HAND_OVER, 2), 0, "granted after the cut");
        assert_eq!(found_at("patient:0", 10, 20, 2), 0, "perhaps handed over");
        assert_eq!(found_at("patient:0", 10 + HAND_OVER, 20 + HAND_OVER, 2), 1);
        assert_eq!(found(10, 20, 1), 0, "another client is cut off");
    }
}
