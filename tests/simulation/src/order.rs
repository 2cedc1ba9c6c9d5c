//! The order of fair callers, while no fault has happened.

use std::time::Duration;

/// A caller that waited in a fair queue and got the lock.
#[derive(Debug, Clone)]
pub(super) struct FairTurn {
    pub(super) key: String,
    pub(super) holder: String,
    pub(super) begun: Duration,
    pub(super) granted: Duration,
}

/// Returns the pairs of callers that got the lock in the wrong order before `until`. The order of two callers counts if
/// the second one begins at least `apart` later, so that its ticket arrives later.
pub(super) fn overtaken(turns: &[FairTurn], until: Duration, apart: Duration) -> Vec<String> {
    let mut found = Vec::new();
    for first in turns.iter().filter(|turn| turn.granted < until) {
        let is_overtaking = |second: &&FairTurn| {
            second.key == first.key
                && second.begun >= first.begun + apart
                && second.granted < first.granted
        };
        for second in turns.iter().filter(is_overtaking) {
            let FairTurn { key, holder, .. } = first;
            found.push(format!("{holder} was overtaken at {key}: {first:?} by {second:?}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(key: &str, begun: u64, granted: u64) -> FairTurn {
        let [begun, granted] = [begun, granted].map(Duration::from_millis);
        FairTurn { key: key.to_owned(), holder: String::new(), begun, granted }
    }

    #[test]
    fn a_caller_that_was_overtaken_is_found() {
        let (until, apart) = (Duration::from_secs(1), Duration::from_millis(10));
        let found = |turns: &[FairTurn]| overtaken(turns, until, apart).len();
        assert_eq!(found(&[turn("a", 0, 50), turn("a", 10, 60), turn("b", 20, 30)]), 0);
        assert_eq!(found(&[turn("a", 0, 50), turn("a", 10, 40)]), 1);
        assert_eq!(found(&[turn("a", 0, 50), turn("a", 9, 40)]), 0, "too close to each other");
        assert_eq!(found(&[turn("a", 0, 1000), turn("a", 10, 40)]), 0, "after the first fault");
    }
}
