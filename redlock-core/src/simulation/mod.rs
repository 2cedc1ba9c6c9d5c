//! Hooks for the deterministic simulation in `tests/simulation`, behind the feature `unstable-simulation`.
//!
//! The hooks replace the network, the clock and the random values of a manager, and report whether it is
//! idle. They are exempt from semantic versioning: any release may change or remove them. With the feature
//! switched on, a manager that was not connected by [`connect`] behaves as it does without the feature, and
//! the values are unpredictable on every thread that has not called [`seed`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::telemetry::Trace;
use crate::{ConnectError, LockManager, LockManagerBuilder};

pub use crate::seeded::{Seeded, seed};
pub use crate::store::kit::dial::{Dial, Dialing, Stream};
pub use crate::store::redis::scripts;

/// Connects a manager to simulated servers.
///
/// `clock` returns the time since any fixed moment. `dial` is called with the URL of each node.
///
/// # Errors
///
/// Returns the errors of [`LockManagerBuilder::connect`].
pub async fn connect(
    mut builder: LockManagerBuilder,
    clock: impl Fn() -> Duration + Send + Sync + 'static,
    dial: impl Fn(&str) -> Arc<dyn Dial>,
) -> Result<LockManager, ConnectError> {
    builder.clock = Arc::new(Readings(clock));
    builder.dialed_by(dial).connect().await
}

/// A clock that shows the time that a function returns.
struct Readings<F>(F);

impl<F: Fn() -> Duration + Send + Sync + 'static> Clock for Readings<F> {
    fn now(&self) -> Moment {
        Moment::at((self.0)())
    }

    /// The wall clock goes with the simulated time, so that each run of a seed stores the same texts.
    fn unix_time(&self) -> Duration {
        Duration::from_secs(1_795_000_000) + (self.0)()
    }
}

impl<F> fmt::Debug for Readings<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readings").finish_non_exhaustive()
    }
}

/// Returns whether no caller of this manager holds a lock or waits for one.
pub fn is_idle(locks: &LockManager) -> bool {
    locks.queues().is_empty() && locks.fair_queues().is_empty()
}

/// Does what a pair of an acquisition and a release does with its spans, for a bench of their cost.
pub fn trace_a_pair(name: &str) {
    let acquire = Trace::of_acquisition(name);
    if acquire.is_wanted() {
        acquire.record("outcome", "acquired");
    }
    acquire.record("granted", 1);
    acquire.record("nodes", 1);
    let hold = Trace::of_hold(name);
    if hold.is_wanted() {
        hold.record("end", "released");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_manager_is_idle_without_holders_and_waiters() {
        let locks = LockManager::in_memory();
        assert!(is_idle(&locks));
        let guard = locks.lock("order:42").try_acquire().await.unwrap();
        assert!(!is_idle(&locks));
        guard.release().await.unwrap();
        assert!(is_idle(&locks));
    }
}
