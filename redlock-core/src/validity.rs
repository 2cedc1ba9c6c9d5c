//! How long a holder may rely on its lock.
//!
//! The formula is that of the Redis documentation ("Distributed locks with Redis", the Redlock algorithm):
//! validity = lease - time that the acquisition took - clock drift.

use std::time::Duration;

/// The shortest lease: a shorter one would leave no validity after drift and a round trip.
pub(crate) const MIN_EXPIRE: Duration = Duration::from_millis(10);

/// The longest lease. A key with a longer time to live is not a lock of this library.
pub(crate) const MAX_EXPIRE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The shortest lease of a reader that joins the lock of another one: the window, which is missing from it, is a tenth of it.
pub(crate) const SHORTEST_JOINED: Duration = Duration::from_millis(200);

/// The highest number of permits of a lock. Each holder has an entry of its own at the key, and a server reads all of
/// them at each acquisition and release.
pub(crate) const MAX_PERMITS: u32 = 1000;

/// The highest number of keys of one lock. A script sets all of them in one step, and blocks its server
/// meanwhile.
pub(crate) const MAX_KEYS: usize = 64;

/// The range of allowed numbers of keys, for messages.
macro_rules! allowed_keys {
    () => {
        "from 1 to 64 different keys"
    };
}

/// [`MIN_EXPIRE`] as text, for messages.
macro_rules! shortest_lease {
    () => {
        "10 ms"
    };
}

/// [`MAX_EXPIRE`] as text, for messages.
macro_rules! longest_lease {
    () => {
        "7 days"
    };
}

/// The range of allowed permits, for messages.
macro_rules! allowed_permits {
    () => {
        "from 1 to 1000"
    };
}

/// The range of allowed leases, for messages.
macro_rules! allowed_leases {
    () => {
        concat!(
            "from ",
            $crate::validity::shortest_lease!(),
            " to ",
            $crate::validity::longest_lease!()
        )
    };
}
pub(crate) use {allowed_keys, allowed_leases, allowed_permits, longest_lease, shortest_lease};

/// Returns whether a lease of this length is allowed.
pub(crate) fn is_allowed(expire: Duration) -> bool {
    (MIN_EXPIRE..=MAX_EXPIRE).contains(&expire)
}

/// Returns how far the clocks of the nodes and of this machine together may drift apart in `time`: 1 %.
pub(crate) fn max_drift(time: Duration) -> Duration {
    time / 100
}

/// Returns the margin for clock drift: 1 % of the lease plus 2 ms, as in the reference implementations of the
/// Redis documentation.
pub(crate) fn drift(expire: Duration) -> Duration {
    max_drift(expire) + Duration::from_millis(2)
}

/// Returns the remaining validity of a lease of `expire`. `elapsed` is the time since before the first byte
/// of the command was sent.
pub(crate) fn remaining(expire: Duration, elapsed: Duration) -> Duration {
    expire.saturating_sub(drift(expire).saturating_add(elapsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_name_the_limits() {
        assert_eq!(shortest_lease!(), format!("{} ms", MIN_EXPIRE.as_millis()));
        let day = Duration::from_secs(24 * 60 * 60);
        assert_eq!(longest_lease!(), format!("{} days", MAX_EXPIRE.div_duration_f64(day)));
        assert_eq!(allowed_leases!(), "from 10 ms to 7 days");
        assert_eq!(allowed_permits!(), format!("from 1 to {MAX_PERMITS}"));
        assert_eq!(allowed_keys!(), format!("from 1 to {MAX_KEYS} different keys"));
    }

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
