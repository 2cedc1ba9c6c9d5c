//! What is left to chance: the pauses that keep callers from meeting again and again.
//!
//! Not the tokens and other values that nobody may guess.

use rand::distr::uniform::{SampleRange, SampleUniform};

/// A random value of the range.
#[cfg(not(feature = "unstable-simulation"))]
pub(crate) fn jitter<T: SampleUniform>(range: impl SampleRange<T>) -> T {
    rand::random_range(range)
}

/// A random value of the range, from the seed of this thread if it has one.
#[cfg(feature = "unstable-simulation")]
pub(crate) fn jitter<T: SampleUniform>(range: impl SampleRange<T>) -> T {
    use rand::RngExt;

    crate::simulation::random::with_random(|random| match random {
        Some(random) => random.random_range(range),
        None => rand::random_range(range),
    })
}
