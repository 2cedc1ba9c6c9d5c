//! What is left to chance: the pauses that keep callers from meeting again and again.
//!
//! Not the tokens and other values that nobody may guess.

use rand::distr::uniform::{SampleRange, SampleUniform};

/// A random value of the range.
#[cfg(not(test))]
pub(crate) fn one_of<T: SampleUniform>(range: impl SampleRange<T>) -> T {
    rand::random_range(range)
}

/// A random value of the range: of a simulation, if this thread runs one.
#[cfg(test)]
pub(crate) fn one_of<T: SampleUniform>(range: impl SampleRange<T>) -> T {
    use rand::RngExt;

    seeded::SOURCE.with_borrow_mut(|source| match source {
        Some(source) => source.random_range(range),
        None => rand::random_range(range),
    })
}

#[cfg(test)]
pub(crate) mod seeded {
    use std::cell::RefCell;

    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    thread_local! {
        pub(super) static SOURCE: RefCell<Option<SmallRng>> = const { RefCell::new(None) };
    }

    /// Lets this thread's chance follow from a seed, until the result is dropped.
    pub(crate) fn from(seed: u64) -> Seeded {
        SOURCE.set(Some(SmallRng::seed_from_u64(seed)));
        Seeded(())
    }

    #[derive(Debug)]
    #[must_use = "chance follows from the seed until this is dropped"]
    pub(crate) struct Seeded(());

    impl Drop for Seeded {
        fn drop(&mut self) {
            SOURCE.set(None);
        }
    }
}
