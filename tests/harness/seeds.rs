//! Seeds of the tests that explore orders of events: storms, simulation and model.
//!
//! `tests/simulation` includes this file, too, so it uses the standard library alone.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// The seeds that the gate runs. A seed that found a defect is added together with the repair.
const LISTED: &str = include_str!("../seeds.txt");
/// Repeats this seed alone.
const SEED: &str = "REDLOCK_SEED";
/// Tries fresh seeds for so many seconds, instead of the listed ones.
const EXPLORE: &str = "REDLOCK_EXPLORE_SECONDS";

/// Returns the seeds under which the test with this name in `tests/seeds.txt` runs.
///
/// * `REDLOCK_SEED=42` gives this seed alone.
/// * `REDLOCK_EXPLORE_SECONDS=60` gives fresh random seeds until the time is over, and at least one.
/// * Without these variables, the seeds are those of the file.
///
/// # Panics
///
/// If a variable is not a whole number, or if the file has no seed for `name`.
pub fn seeds(name: &str) -> Box<dyn Iterator<Item = u64>> {
    if let Some(seed) = number(SEED) {
        return Box::new(std::iter::once(seed));
    }
    let Some(seconds) = number(EXPLORE) else {
        let seeds = listed(name, LISTED);
        assert!(!seeds.is_empty(), "tests/seeds.txt has no seed for {name}");
        return Box::new(seeds.into_iter());
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    // Different in each process and for each call. 32 bits are short enough to be copied by hand.
    let first = RandomState::new().hash_one(name) & u64::from(u32::MAX);
    let rest = (first + 1..).take_while(move |_| Instant::now() < end);
    Box::new(std::iter::once(first).chain(rest))
}

/// Returns the seeds of `name` in a text with lines like `name 7 100..=119`.
fn listed(name: &str, text: &str) -> Vec<u64> {
    let lines = text.lines().filter_map(|line| line.split('#').next()?.trim().split_once(' '));
    let seeds =
        lines.filter(|(test, _)| *test == name).flat_map(|(_, seeds)| seeds.split_whitespace());
    let ranges = seeds.map(|seeds| match seeds.split_once("..=") {
        Some((first, last)) => parse(first)..=parse(last),
        None => parse(seeds)..=parse(seeds),
    });
    ranges.flatten().collect()
}

fn parse(seed: &str) -> u64 {
    seed.parse().unwrap_or_else(|_| panic!("{seed} in tests/seeds.txt is not a whole number"))
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a whole number")))
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn a_line_lists_single_seeds_and_ranges() {
        let text = "# a comment\nstorm 7 10..=12 # found a defect\nstorms 1\n\nstorm 42\n";
        assert_eq!(listed("storm", text), [7, 10, 11, 12, 42]);
        assert_eq!(listed("simulation", text), [0; 0]);
    }
}
