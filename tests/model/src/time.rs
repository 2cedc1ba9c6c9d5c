//! Time, in ticks.
//!
//! A lease lasts [`LEASE`] ticks. A tick is exactly as long as the margin that the library deducts from
//! such a lease: a clock that is one tick off uses the margin up, and two ticks exceed it.

use std::time::Duration;

use crate::validity;

/// The lease in ticks. Three is the smallest number that distinguishes all cases: a tick for the
/// acquisition, a tick for the hold, and the margin.
pub(crate) const LEASE: u8 = 3;

/// The length of a tick. It solves `drift(LEASE * TICK) == TICK`, where the drift is 1 % of the lease and
/// 2 ms.
const TICK: Duration = Duration::from_nanos(2_000_000 * 100 / (100 - LEASE as u64));

/// Returns whether a lease that was asked for `age` ticks ago is still valid, by the library's own
/// arithmetic.
pub(crate) fn is_valid(age: u8) -> bool {
    !validity::remaining(lease(), TICK * u32::from(age)).is_zero()
}

/// Returns whether a lease that was asked for `age` ticks ago is still valid if all clocks run alike.
pub(crate) fn is_valid_without_margin(age: u8) -> bool {
    age < LEASE
}

fn lease() -> Duration {
    TICK * u32::from(LEASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_one_tick() {
        assert_eq!(validity::drift(lease()), TICK);
        let valid: Vec<u8> = (0..=LEASE).filter(|age| is_valid(*age)).collect();
        assert_eq!(valid, [0, 1]);
    }
}
