//! Random pauses that follow from a seed.

use std::cell::RefCell;

use rand::SeedableRng;
use rand::rngs::SmallRng;

thread_local! {
    static RANDOM: RefCell<Option<SmallRng>> = const { RefCell::new(None) };
}

/// Makes the random pauses of this thread follow from a seed, until the result is dropped.
pub fn seed(seed: u64) -> Seeded {
    RANDOM.set(Some(SmallRng::seed_from_u64(seed)));
    Seeded(())
}

/// Ends the effect of [`seed`] when it is dropped.
#[derive(Debug)]
#[must_use = "the pauses follow from the seed until this is dropped"]
pub struct Seeded(());

impl Drop for Seeded {
    fn drop(&mut self) {
        RANDOM.set(None);
    }
}

/// Calls `draw` with the random numbers of this thread, which are `None` without a [`seed`].
pub(crate) fn with_random<T>(draw: impl FnOnce(Option<&mut SmallRng>) -> T) -> T {
    RANDOM.with_borrow_mut(|random| draw(random.as_mut()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::jitter;

    fn pauses() -> [u64; 8] {
        std::array::from_fn(|_| jitter(0..u64::MAX))
    }

    #[test]
    fn only_the_seeded_thread_gets_its_pauses_from_the_seed() {
        let alone = {
            let _seeded = seed(42);
            [pauses(), pauses(), pauses()]
        };
        let seeded = seed(42);
        let first = pauses();
        let elsewhere = std::thread::spawn(pauses).join().unwrap();
        assert_eq!([first, pauses()], alone[..2], "another thread consumes nothing of the seed");
        drop(seeded);
        for random in [elsewhere, pauses()] {
            assert!(!alone.contains(&random));
        }
    }
}
