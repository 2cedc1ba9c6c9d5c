//! The holds of a history, and the checks of pairs of holds.

use std::collections::{BTreeMap, HashMap};

use super::event::{Event, What};

/// The period in which a process believed to hold a key: from the grant to the release or to the end of the
/// validity, whichever comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The key.
    pub key: String,
    /// The id of the holder's process.
    pub process: u32,
    /// The number of the process's attempt.
    pub number: u64,
    /// The beginning of the attempt, if the history contains it.
    pub asked: Option<u64>,
    /// The beginning of the hold.
    pub start: u64,
    /// The end of the hold.
    pub end: u64,
    /// The number of the fencing token; `None` without fencing.
    pub fencing: Option<i64>,
}

/// Returns all holds, ordered by their beginning. Leaves out a hold whose validity ended before its grant was
/// recorded.
pub fn holds(events: &[Event]) -> Vec<Hold> {
    let mut asked = HashMap::new();
    let mut holds: Vec<Hold> = Vec::new();
    // The index of each attempt's hold, until its release.
    let mut believed = HashMap::new();
    for event in events {
        let (process, number) = (event.process, event.number);
        match &event.what {
            What::Asked { .. } => {
                asked.insert((process, number), event.at);
            }
            What::Granted { believed_until, fencing, key } => {
                let asked = asked.remove(&(process, number));
                let (start, end) = (event.at, *believed_until);
                believed.insert((process, number), holds.len());
                let (key, fencing) = (key.clone(), *fencing);
                holds.push(Hold { key, process, number, asked, start, end, fencing });
            }
            What::Believed { until } => {
                if let Some(index) = believed.get(&(process, number)) {
                    holds[*index].end = *until;
                }
            }
            What::Released => {
                if let Some(index) = believed.remove(&(process, number)) {
                    holds[index].end = holds[index].end.min(event.at);
                }
            }
            _ => {}
        }
    }
    holds.retain(|hold| hold.start < hold.end);
    holds.sort_by_key(|hold| hold.start);
    holds
}

/// Finds pairs of holds of one key that overlap. A hold may begin at the end of another one.
///
/// If any holds overlap, the result has at least one pair, but not every pair: each hold is paired only with
/// the earlier hold that ends last.
pub fn overlaps(holds: &[Hold]) -> Vec<(Hold, Hold)> {
    let mut found = Vec::new();
    for holds in by_key(holds).into_values() {
        let mut furthest: Option<&Hold> = None;
        for hold in holds {
            if let Some(before) = furthest.filter(|before| hold.start < before.end) {
                found.push((before.clone(), hold.clone()));
            }
            if furthest.is_none_or(|before| hold.end > before.end) {
                furthest = Some(hold);
            }
        }
    }
    found
}

/// Finds holds whose fencing token is not larger than that of an earlier hold of the same key. Equal numbers
/// are allowed if the two acquisitions overlapped in time.
pub(super) fn stale_fencing(holds: &[Hold]) -> Vec<(Hold, Hold)> {
    let mut found = Vec::new();
    for holds in by_key(holds).into_values() {
        let mut largest: Option<(&Hold, i64)> = None;
        for hold in holds {
            let Some(fencing) = hold.fencing else { continue };
            if let Some((before, largest)) = largest {
                let apart = hold.asked.is_none_or(|asked| asked > before.start);
                if fencing < largest || apart && fencing == largest {
                    found.push((before.clone(), hold.clone()));
                }
            }
            if largest.is_none_or(|(_, largest)| fencing > largest) {
                largest = Some((hold, fencing));
            }
        }
    }
    found
}

fn by_key(holds: &[Hold]) -> BTreeMap<&str, Vec<&Hold>> {
    let mut by_key: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    for hold in holds {
        by_key.entry(&hold.key).or_default().push(hold);
    }
    for holds in by_key.values_mut() {
        holds.sort_by_key(|hold| hold.start);
    }
    by_key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(key: &str, start: u64, end: u64) -> Hold {
        let (key, process, number) = (key.to_owned(), 1, start);
        Hold { key, process, number, asked: None, start, end, fencing: None }
    }

    fn fenced(asked: u64, start: u64, fencing: i64) -> Hold {
        Hold { asked: Some(asked), fencing: Some(fencing), ..hold("a", start, start + 1) }
    }

    fn event(at: u64, number: u64, what: What) -> Event {
        Event { at, process: 1, number, what }
    }

    fn granted(at: u64, believed_until: u64) -> Event {
        event(at, 1, What::Granted { believed_until, fencing: None, key: "a".to_owned() })
    }

    #[test]
    fn holds_one_after_another_do_not_overlap() {
        let holds = [hold("a", 20, 30), hold("a", 10, 20), hold("a", 30, 31)];
        assert_eq!(overlaps(&holds), []);
    }

    #[test]
    fn overlapping_holds_are_found() {
        let holds = [hold("a", 10, 20), hold("a", 30, 40), hold("a", 19, 25)];
        assert_eq!(overlaps(&holds), [(hold("a", 10, 20), hold("a", 19, 25))]);
    }

    #[test]
    fn a_long_hold_overlaps_with_all_that_begin_inside_it() {
        let holds = [hold("a", 10, 100), hold("a", 20, 21), hold("a", 50, 51)];
        assert_eq!(overlaps(&holds).len(), 2);
    }

    #[test]
    fn holds_of_different_keys_do_not_overlap() {
        assert_eq!(overlaps(&[hold("a", 10, 20), hold("b", 10, 20)]), []);
    }

    #[test]
    fn a_hold_ends_with_its_validity_or_its_release() {
        let released = |at| event(at, 1, What::Released);
        let believed = |at, until| event(at, 1, What::Believed { until });
        let end = |events: &[Event]| holds(events).first().map(|hold| (hold.start, hold.end));
        assert_eq!(end(&[granted(10, 20), released(15)]), Some((10, 15)));
        assert_eq!(end(&[granted(10, 20), released(25)]), Some((10, 20)));
        assert_eq!(end(&[granted(10, 20)]), Some((10, 20)), "killed");
        assert_eq!(end(&[granted(10, 20), believed(15, 30)]), Some((10, 30)), "renewed");
        assert_eq!(end(&[granted(10, 20), believed(15, 15)]), Some((10, 15)), "lost");
        assert_eq!(end(&[granted(10, 10)]), None, "the validity was over at the grant");
    }

    #[test]
    fn a_fencing_token_that_does_not_grow_is_found() {
        let found = |holds: &[Hold]| !stale_fencing(holds).is_empty();
        assert!(!found(&[fenced(1, 2, 7), fenced(3, 4, 8), fenced(5, 6, 9)]));
        assert!(found(&[fenced(1, 2, 7), fenced(3, 4, 7)]), "equal, one after the other");
        assert!(!found(&[fenced(1, 3, 7), fenced(2, 4, 7)]), "equal, requested together");
        assert!(found(&[fenced(1, 3, 7), fenced(2, 4, 6)]), "smaller, requested together");
        let late = [fenced(1, 2, 9), fenced(3, 4, 7), fenced(5, 6, 8)];
        assert_eq!(stale_fencing(&late).len(), 2, "both are smaller than the first");
        assert!(!found(&[hold("a", 1, 2), fenced(3, 4, 1), hold("a", 5, 6)]), "only one number");
    }
}
