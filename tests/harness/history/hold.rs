//! The holds of a history, and the checks of pairs of holds.

use std::collections::{BTreeMap, HashMap};

use super::event::{Event, Sharing, What};

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
    /// With whom the holder shares the lock.
    pub sharing: Sharing,
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
            What::Granted { believed_until, fencing, sharing, key } => {
                let asked = asked.remove(&(process, number));
                let (start, end) = (event.at, *believed_until);
                believed.insert((process, number), holds.len());
                let (key, fencing, sharing) = (key.clone(), *fencing, *sharing);
                holds.push(Hold { key, process, number, asked, start, end, fencing, sharing });
            }
            // From here on, this is another hold.
            What::Changed { sharing } => {
                if let Some(index) = believed.get_mut(&(process, number)) {
                    let before: &mut Hold = &mut holds[*index];
                    let after = Hold { start: event.at, sharing: *sharing, ..before.clone() };
                    before.end = before.end.min(event.at);
                    *index = holds.len();
                    holds.push(after);
                }
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

/// Finds pairs of holds of one key that overlap, and may not. A hold may begin at the end of another one.
///
/// If there are any, the result has at least one pair, but not every pair: of the earlier holds of each kind, each hold
/// is paired only with the hold that ends last.
pub fn overlaps(holds: &[Hold]) -> Vec<(Hold, Hold)> {
    let mut found = Vec::new();
    for holds in by_key(holds).into_values() {
        let mut furthest: [Option<&Hold>; 3] = [None; 3];
        for hold in holds {
            let overlapping = furthest
                .iter()
                .flatten()
                .find(|before| hold.start < before.end && !before.sharing.allows(hold.sharing));
            if let Some(before) = overlapping {
                found.push(((*before).clone(), hold.clone()));
            }
            let kind = match hold.sharing {
                Sharing::Exclusive => 0,
                Sharing::Readers => 1,
                Sharing::Permits(_) => 2,
            };
            if furthest[kind].is_none_or(|before| hold.end > before.end) {
                furthest[kind] = Some(hold);
            }
        }
    }
    found
}

/// Finds holds that began although there were as many holders of the key as the new holder allowed, each with one of
/// these holders.
///
/// The history does not show in which order the node granted two locks that were requested at the same time.
pub fn too_many(holds: &[Hold]) -> Vec<(Hold, Hold)> {
    let mut found = Vec::new();
    for holds in by_key(holds).into_values() {
        for (index, hold) in holds.iter().enumerate() {
            let Sharing::Permits(permits) = hold.sharing else { continue };
            let present: Vec<_> =
                holds[..index].iter().filter(|before| hold.start < before.end).collect();
            let asked = hold.asked.unwrap_or(hold.start);
            let earlier = present.iter().filter(|before| before.start <= asked).count();
            let last = present.last();
            let is_too_many = earlier >= as_count(permits) || !may_coexist(&present, permits);
            if let Some(last) = last.filter(|_| is_too_many) {
                found.push(((**last).clone(), (*hold).clone()));
            }
        }
    }
    found
}

/// Returns whether the node can have granted these locks one after another, in any order.
fn may_coexist(present: &[&&Hold], permits: u32) -> bool {
    let limit = |hold: &&&Hold| match hold.sharing {
        Sharing::Permits(permits) => as_count(permits),
        Sharing::Exclusive | Sharing::Readers => usize::MAX,
    };
    let mut limits: Vec<_> = present.iter().map(limit).chain([as_count(permits)]).collect();
    limits.sort_unstable();
    limits.iter().enumerate().all(|(before, limit)| before < *limit)
}

fn as_count(permits: u32) -> usize {
    usize::try_from(permits).unwrap_or(usize::MAX)
}

/// Returns how often a reader began to hold a key while another reader held it.
pub fn overlapping_readers(holds: &[Hold]) -> usize {
    let mut count = 0;
    for holds in by_key(holds).into_values() {
        let mut until = 0;
        for hold in holds.into_iter().filter(|hold| hold.sharing == Sharing::Readers) {
            count += usize::from(hold.start < until);
            until = until.max(hold.end);
        }
    }
    count
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
        let (asked, fencing, sharing) = (None, None, Sharing::Exclusive);
        Hold { key, process, number, asked, start, end, fencing, sharing }
    }

    fn fenced(asked: u64, start: u64, fencing: i64) -> Hold {
        Hold { asked: Some(asked), fencing: Some(fencing), ..hold("a", start, start + 1) }
    }

    fn event(at: u64, number: u64, what: What) -> Event {
        Event { at, process: 1, number, what }
    }

    fn granted(at: u64, believed_until: u64) -> Event {
        let (key, sharing) = ("a".to_owned(), Sharing::Exclusive);
        event(at, 1, What::Granted { believed_until, fencing: None, sharing, key })
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

    fn shared(start: u64, end: u64, sharing: Sharing) -> Hold {
        Hold { sharing, ..hold("a", start, end) }
    }

    #[test]
    fn readers_overlap_each_other_but_nobody_else() {
        let reader = |start, end| shared(start, end, Sharing::Readers);
        let permit = |start, end| shared(start, end, Sharing::Permits(2));
        let readers = [reader(10, 30), reader(15, 20), reader(25, 40)];
        assert_eq!(overlaps(&readers), []);
        assert_eq!(overlapping_readers(&readers), 2);
        // The reader that began last does not end last.
        assert_eq!(overlaps(&[reader(10, 30), reader(15, 20), hold("a", 25, 26)]).len(), 1);
        assert_eq!(overlaps(&[hold("a", 10, 30), reader(15, 20), reader(20, 25)]).len(), 2);
        assert_eq!(overlaps(&[reader(10, 30), permit(15, 20)]).len(), 1);
        assert_eq!(overlaps(&[permit(10, 30), permit(15, 20)]), []);
    }

    #[test]
    fn more_holders_than_permits_are_found() {
        let permit = |start, end, permits| shared(start, end, Sharing::Permits(permits));
        let two = [permit(10, 30, 2), permit(15, 20, 2), permit(20, 25, 2)];
        assert_eq!(too_many(&two), []);
        assert_eq!(too_many(&[permit(10, 30, 2), permit(15, 20, 2), permit(19, 25, 2)]).len(), 1);
        assert_eq!(too_many(&[permit(10, 30, 2), permit(15, 20, 2), permit(19, 25, 3)]), []);
        assert_eq!(too_many(&[permit(10, 30, 2), permit(15, 20, 1)]).len(), 1);
        // The node may have granted the later one first.
        let asked = |hold: Hold, asked| Hold { asked: Some(asked), ..hold };
        assert_eq!(too_many(&[permit(10, 30, 2), asked(permit(15, 20, 1), 9)]), []);
        assert_eq!(too_many(&[permit(10, 30, 2), asked(permit(15, 20, 1), 10)]).len(), 1);
        assert_eq!(too_many(&[permit(10, 30, 1), asked(permit(15, 20, 1), 9)]).len(), 1);
        let three = [permit(10, 30, 1), permit(11, 30, 3), asked(permit(15, 20, 1), 9)];
        assert_eq!(too_many(&three).len(), 1);
    }

    #[test]
    fn a_change_of_the_mode_begins_another_hold() {
        let changed = |at, sharing| event(at, 1, What::Changed { sharing });
        let events = [
            granted(10, 20),
            changed(12, Sharing::Readers),
            event(13, 1, What::Believed { until: 30 }),
            changed(15, Sharing::Exclusive),
            event(25, 1, What::Released),
        ];
        let holds = holds(&events);
        let parts: Vec<_> = holds.iter().map(|hold| (hold.start, hold.end, hold.sharing)).collect();
        let expected = [
            (10, 12, Sharing::Exclusive),
            (12, 15, Sharing::Readers),
            (15, 25, Sharing::Exclusive),
        ];
        assert_eq!(parts, expected);
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
