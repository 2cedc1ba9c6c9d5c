//! How long a holder may believe in its lock.
//!
//! The arithmetic of the Redis documentation ("Distributed locks with Redis", the Redlock
//! algorithm): validity = lease - time that the acquisition took - clock drift.

use std::time::Duration;

/// The shortest lease: below it, drift and a round trip leave nothing.
pub(crate) const MIN_EXPIRE: Duration = Duration::from_millis(10);

/// The longest lease. A key that lives longer is not one of ours.
pub(crate) const MAX_EXPIRE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The leases that are allowed, for messages.
macro_rules! allowed_leases {
    () => {
        "from 10 ms to 7 days"
    };
}
pub(crate) use allowed_leases;

/// Whether a lock may be held for this time without an extension.
pub(crate) fn is_allowed(expire: Duration) -> bool {
    (MIN_EXPIRE..=MAX_EXPIRE).contains(&expire)
}

/// How far clocks may run apart in a time, those of the nodes and of this machine together: 1 %.
pub(crate) fn apart(time: Duration) -> Duration {
    time / 100
}

/// The margin for clocks that do not run alike: 1 % of the lease and 2 ms, as in the Redis
/// documentation's reference implementations.
pub(crate) fn drift(expire: Duration) -> Duration {
    apart(expire) + Duration::from_millis(2)
}

/// What is left of a lease of `expire` that was asked for `elapsed` ago, counted from before the
/// first byte was sent.
pub(crate) fn remaining(expire: Duration, elapsed: Duration) -> Duration {
    expire.saturating_sub(drift(expire)).saturating_sub(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_and_elapsed_time_are_deducted() {
        let expire = Duration::from_secs(5);
        assert_eq!(drift(expire), Duration::from_millis(52));
        assert_eq!(remaining(expire, Duration::from_millis(48)), Duration::from_millis(4900));
    }

    /// In another library a lease of 1 ms became an endless validity by underflow.
    #[test]
    fn a_lease_that_is_used_up_has_no_validity() {
        assert_eq!(remaining(Duration::from_millis(1), Duration::ZERO), Duration::ZERO);
        assert_eq!(remaining(Duration::from_secs(5), Duration::from_secs(6)), Duration::ZERO);
        assert!(!remaining(MIN_EXPIRE, Duration::ZERO).is_zero());
    }
}
