//! Random values that follow from a seed, in simulations and in the unit tests of this crate.
//!
//! A unit test draws the same values in each run. They follow from its name and from the variable `REDLOCK_SEED`, a
//! whole number, by default 0. A failed test shows the variable in its output.

use std::cell::RefCell;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

thread_local! {
    static RANDOM: RefCell<Option<SmallRng>> = const { RefCell::new(None) };
}

/// Makes the random values of this thread follow from a seed, until the returned value is dropped.
#[cfg(feature = "unstable-simulation")]
pub fn seed(seed: u64) -> Seeded {
    RANDOM.set(Some(SmallRng::seed_from_u64(seed)));
    Seeded(())
}

/// Ends the effect of [`seed`] when it is dropped.
#[cfg(feature = "unstable-simulation")]
#[derive(Debug)]
#[must_use = "the random values follow from the seed until this is dropped"]
pub struct Seeded(());

#[cfg(feature = "unstable-simulation")]
impl Drop for Seeded {
    fn drop(&mut self) {
        RANDOM.set(None);
    }
}

/// Calls `draw` with the generator of this thread: a secure one, unless the thread has a seed.
pub(crate) fn with_random<T>(draw: impl FnOnce(&mut (dyn Rng + 'static)) -> T) -> T {
    RANDOM.with_borrow_mut(|random| {
        #[cfg(test)]
        random.get_or_insert_with(of_this_test);
        match random {
            Some(random) => draw(random),
            None => draw(&mut rand::rng()),
        }
    })
}

/// Returns the generator of a thread of a test.
#[cfg(test)]
fn of_this_test() -> SmallRng {
    use std::sync::atomic::{AtomicU64, Ordering};

    static OTHER_THREADS: AtomicU64 = AtomicU64::new(1);
    let seed = std::env::var("REDLOCK_SEED").unwrap_or_else(|_| "0".to_owned());
    println!("seed of this test: REDLOCK_SEED={seed}");
    let seed: u64 = seed.parse().expect("REDLOCK_SEED is a whole number");
    // The first thread of a test has the path of the test as its name. Each of the others needs a seed of its own, or
    // their tokens would be the same.
    let thread = std::thread::current();
    let (name, number) = match thread.name() {
        Some(test) if test.contains("::") => (test, 0),
        _ => ("", OTHER_THREADS.fetch_add(1, Ordering::Relaxed)),
    };
    SmallRng::seed_from_u64(seed_of(name, number, seed))
}

/// Returns the seed of a thread, as a hash (FNV-1a) that is the same in each process and with each version of Rust.
#[cfg(test)]
fn seed_of(test: &str, thread: u64, seed: u64) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(thread.to_le_bytes()).chain(test.bytes());
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.fold(0xcbf2_9ce4_8422_2325, hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::jitter;

    fn values() -> [u64; 8] {
        std::array::from_fn(|_| jitter(0..u64::MAX))
    }

    /// Starts the values of this thread anew.
    fn again() -> [u64; 8] {
        RANDOM.set(None);
        values()
    }

    #[test]
    fn a_test_draws_the_same_values_in_each_run() {
        let first = again();
        assert_ne!(first, values());
        assert_eq!(first, again());
        // Neither the process nor the order of the tests counts.
        assert_eq!(seed_of("queue::tests::one", 0, 42), 18_285_679_916_220_450_905);
    }

    #[test]
    fn threads_of_a_test_draw_different_values() {
        let [one, two] = [(); 2].map(|()| std::thread::spawn(values).join().unwrap());
        for value in one {
            assert!(!two.contains(&value) && !again().contains(&value));
        }
    }

    #[test]
    #[cfg(feature = "unstable-simulation")]
    fn a_seed_affects_only_its_own_thread() {
        let alone = {
            let _seeded = seed(42);
            [values(), values(), values()]
        };
        let seeded = seed(42);
        let first = values();
        let elsewhere = std::thread::spawn(values).join().unwrap();
        assert_eq!([first, values()], alone[..2], "another thread draws no numbers from the seed");
        drop(seeded);
        for random in [elsewhere, values()] {
            assert!(!alone.contains(&random));
        }
    }
}
