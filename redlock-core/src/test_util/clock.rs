//! The clock of a test.

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use crate::LockManagerBuilder;
use crate::clock::{Clock, Moment};

/// The smallest step of tokio's timers.
const TICK: Duration = Duration::from_millis(1);

/// A clock that stands still until the test moves it.
///
/// The clock is the time of the test's Tokio runtime, paused as by [`tokio::time::pause`]. Waits,
/// renewals and timeouts follow this time in any case. The leases of a manager with this clock, and the
/// leases on its [`TestNode`](super::TestNode)s, follow it too.
///
/// # How time moves
///
/// * Whenever all tasks wait, Tokio moves the time to the next timer. A handler that sleeps for a minute
///   ends at once, and its lock is renewed meanwhile.
/// * [`advance`](Self::advance) lets a duration pass in the same way, timer by timer.
/// * [`tokio::time::advance`] moves the time in one jump, as if the process had been stopped meanwhile.
///   Renewals are late, and a lock can be lost.
///
/// Real input and output does not move the time, but Tokio may move the time while a task waits for
/// input or output. Call the router by `tower::ServiceExt::oneshot` instead of over a socket.
///
/// Cloning is cheap, and the clones are the same clock.
#[derive(Clone)]
pub struct TestClock {
    start: Instant,
    runtime: Handle,
}

impl TestClock {
    /// Pauses the time of the current Tokio runtime, unless it is already paused (`start_paused =
    /// true`), and returns the clock of the runtime.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime, and in a multi-threaded runtime, whose time cannot be paused.
    /// The runtime of `#[tokio::test]` is single-threaded by default.
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it changes the runtime")]
    pub fn new() -> Self {
        if !is_paused() {
            tokio::time::pause();
        }
        Self { start: Instant::now(), runtime: Handle::current() }
    }

    /// Lets a duration pass, timer by timer, so that each renewal and each timeout happens at its own
    /// time. Returns when all tasks wait again.
    ///
    /// The time moves by up to 3 ms more than `duration`, because timers have a resolution of 1 ms.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Time that has passed before the future is dropped is not taken back.
    pub async fn advance(&self, duration: Duration) {
        self.sleep(duration).await;
        // Tokio moves the time only when no task can run. So the second sleep ends after all tasks that
        // were due together with the first one have run.
        self.sleep(TICK).await;
    }

    /// Returns a sleep of the clock's runtime. May be called outside of the runtime, because an
    /// operation may be sent to a node there.
    pub(super) fn sleep(&self, duration: Duration) -> Sleep {
        let _entered = self.runtime.enter();
        tokio::time::sleep(duration)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        // Outside of the runtime, tokio would read the clock of the system.
        let _entered = self.runtime.enter();
        Moment::default().plus(self.start.elapsed())
    }
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClock").finish_non_exhaustive()
    }
}

impl LockManagerBuilder {
    /// Measures leases on the clock of a test. Defaults to the clock of the system.
    ///
    /// [`TestLocks::builder`](super::TestLocks::builder) has set the clock already.
    pub fn test_clock(mut self, clock: &TestClock) -> Self {
        self.clock = std::sync::Arc::new(clock.clone());
        self
    }
}

/// Returns whether the time of the current runtime is paused. Tokio has no function for this, and panics
/// if a paused time is paused again.
fn is_paused() -> bool {
    let before = Instant::now();
    let system = std::time::Instant::now();
    while std::time::Instant::now() == system {
        std::hint::spin_loop();
    }
    Instant::now() == before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_clock_pauses_the_time() {
        assert!(!is_paused());
        let clock = TestClock::new();
        assert!(is_paused());
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(clock.now(), before);
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_is_paused_already_stays_paused() {
        TestClock::new();
        TestClock::new();
        assert!(is_paused());
    }

    #[tokio::test]
    async fn all_tasks_that_are_due_have_run_when_the_clock_has_advanced() {
        let clock = TestClock::new();
        let work = |duration| async move {
            tokio::time::sleep(duration).await;
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
        };
        let five = Duration::from_secs(5);
        let (due, later) = (tokio::spawn(work(five)), tokio::spawn(work(five + TICK * 5)));
        let before = clock.now();
        clock.advance(five).await;
        assert!(due.is_finished());
        assert!(!later.is_finished());
        let moved = clock.now().since(before);
        assert!(moved >= five && moved <= five + TICK * 3, "{moved:?}");
    }

    #[tokio::test]
    async fn the_clock_is_the_same_outside_of_the_runtime() {
        let clock = TestClock::new();
        clock.advance(Duration::from_secs(3600)).await;
        let inside = clock.now();
        let outside = std::thread::spawn(move || clock.now()).join().unwrap();
        assert_eq!(outside, inside);
    }
}
