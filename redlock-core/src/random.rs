//! The source of all random values.

use ahash::RandomState;
use rand::RngExt;

/// Calls `draw` with the generator of this thread. The generator is cryptographically secure: a client that guesses a
/// token can release the lock.
#[cfg(not(any(test, feature = "unstable-simulation")))]
pub(crate) fn with_random<T>(draw: impl FnOnce(&mut rand::rngs::ThreadRng) -> T) -> T {
    draw(&mut rand::rng())
}

#[cfg(any(test, feature = "unstable-simulation"))]
pub(crate) use crate::seeded::with_random;

/// Returns the state of a hash map whose keys the callers choose. They must not be able to choose colliding ones.
pub(crate) fn hash_state() -> RandomState {
    let [k0, k1, k2, k3] = with_random(RngExt::random);
    RandomState::with_seeds(k0, k1, k2, k3)
}
