//! Random pauses, which keep callers from colliding again and again.

use rand::RngExt;
use rand::distr::uniform::{SampleRange, SampleUniform};

use crate::random::with_random;

/// Returns a random value of the range.
pub(crate) fn jitter<T: SampleUniform>(range: impl SampleRange<T>) -> T {
    with_random(|random| random.random_range(range))
}
