//! Random pauses, which keep callers from colliding again and again.
//!
//! Do not use them for tokens and other values that must be unpredictable.

use rand::distr::uniform::{SampleRange, SampleUniform};

/// Returns a random value of the range.
#[cfg(not(feature = "unstable-simulation"))]
pub(crate) fn jitter<T: SampleUniform>(range: impl SampleRange<T>) -> T {
    rand::random_range(range)
}

/// Returns a random value of the range, drawn from this thread's seed if it has one.
#[cfg(feature = "unstable-simulation")]
pub(crate) fn jitter<T: SampleUniform>(range: impl SampleRange<T>) -> T {
    use rand::RngExt;

    crate::simulation::random::with_random(|random| match random {
        Some(random) => random.random_range(range),
        None => rand::random_range(range),
    })
}
