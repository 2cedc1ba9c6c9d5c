//! The clock that measures leases.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of the time, which a manager gives to its nodes, see [`NodeSettings::clock`](crate::node::NodeSettings::clock).
/// Tests use their own clock, so that they need not wait.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the present time.
    fn now(&self) -> Moment;

    /// Returns the time since 1970 by the wall clock, which may be stepped. It is only shown: no lease depends on it. The
    /// provided method reads the clock of the operating system, and returns zero before 1970.
    fn unix_time(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// A point in time of a [`Clock`]. Moments of different clocks cannot be compared.
///
/// The clock goes on while the machine is suspended, because the leases on the servers do.
// In nanoseconds since the clock's zero, which suffices for 584 years. Every lock has a deadline.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The last moment, which no clock reaches.
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// Returns the moment at which the clock has run for this time.
    pub(crate) fn at(time: Duration) -> Self {
        Self(nanos(time))
    }

    /// Returns the time that has passed since `earlier`: zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment `duration` later, or the last moment of all, which no clock reaches.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Returns the time that is left until `deadline`: zero when the clock has reached it.
    pub fn time_until(self, deadline: Self) -> Duration {
        deadline.since(self)
    }

    /// Returns whether the clock has reached `deadline`.
    pub fn has_reached(self, deadline: Self) -> bool {
        self >= deadline
    }
}

/// Returns a duration in nanoseconds, at most [`u64::MAX`].
pub(crate) fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}

/// The clock of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    /// On Linux, `CLOCK_BOOTTIME` is `CLOCK_MONOTONIC` plus the time asleep. It never falls behind, so
    /// reading it alone is enough. On Apple's systems, `CLOCK_MONOTONIC` includes the time asleep.
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    fn now(&self) -> Moment {
        use rustix::time::ClockId;
        #[cfg(not(target_vendor = "apple"))]
        const CLOCK: ClockId = ClockId::Boottime;
        #[cfg(target_vendor = "apple")]
        const CLOCK: ClockId = ClockId::Monotonic;
        Moment::at(read(CLOCK))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    fn now(&self) -> Moment {
        use std::sync::LazyLock;
        use std::time::Instant;
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        Moment::at(START.elapsed())
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn read(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    // Both clocks count from the start of the machine, so neither is negative.
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

#[cfg(test)]
pub(crate) mod fake {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::{Clock, Duration, Moment};

    impl FakeClock {
        /// The seconds since 1970 of a clock that was not moved.
        pub(crate) const UNIX_TIME: u64 = 1_795_000_000;
    }

    /// A clock that stands still until it is moved.
    #[derive(Debug, Clone)]
    pub(crate) struct FakeClock(Arc<Mutex<Moment>>);

    impl Default for FakeClock {
        fn default() -> Self {
            Self(Arc::new(Mutex::new(Moment::at(Duration::from_secs(1000)))))
        }
    }

    impl FakeClock {
        pub(crate) fn advance(&self, duration: Duration) {
            let mut now = self.0.lock();
            *now = now.plus(duration);
        }
    }

    impl Clock for FakeClock {
        fn now(&self) -> Moment {
            *self.0.lock()
        }

        fn unix_time(&self) -> Duration {
            let start = Self::default().now();
            Duration::from_secs(Self::UNIX_TIME) + self.now().since(start)
        }
    }

    /// The clock of the test's runtime, which may be paused.
    #[derive(Debug)]
    pub(crate) struct RuntimeClock {
        start: tokio::time::Instant,
    }

    impl RuntimeClock {
        pub(crate) fn new() -> Self {
            Self { start: tokio::time::Instant::now() }
        }
    }

    impl Clock for RuntimeClock {
        fn now(&self) -> Moment {
            Moment::at(self.start.elapsed())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::FakeClock;
    use super::*;

    #[test]
    fn a_deadline_is_reached_at_its_time_and_not_before() {
        let clock = FakeClock::default();
        let start = clock.now();
        let deadline = start.plus(Duration::from_secs(5));
        clock.advance(Duration::from_secs(4));
        assert_eq!(clock.now().since(start), Duration::from_secs(4));
        assert_eq!(clock.now().time_until(deadline), Duration::from_secs(1));
        assert!(!clock.now().has_reached(deadline));
        clock.advance(Duration::from_secs(1));
        assert!(clock.now().has_reached(deadline));
        clock.advance(Duration::from_secs(60));
        assert_eq!(clock.now().time_until(deadline), Duration::ZERO);
        assert_eq!(start.since(clock.now()), Duration::ZERO);
    }

    #[test]
    fn a_moment_in_the_far_future_is_not_in_the_past() {
        let now = FakeClock::default().now();
        assert!(!now.has_reached(now.plus(Duration::MAX)));
    }

    /// In a time namespace, the two clocks of the system are as far apart as after a suspension. If
    /// the machine does not permit such a namespace, the clocks may be equal, and the test proves
    /// less.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_clock_is_the_boot_clock() {
        use rustix::time::ClockId;

        const INSIDE: &str = "REDLOCK_TEST_IN_TIME_NAMESPACE";
        const ASLEEP: Duration = Duration::from_secs(100_000);
        let before = read(ClockId::Boottime);
        let now = SystemClock.now();
        let after = read(ClockId::Boottime);
        let [before_it, after_it] = [before, after].map(Moment::at);
        assert!(before_it <= now && now <= after_it, "{before:?} {now:?} {after:?}");
        if std::env::var_os(INSIDE).is_some() {
            assert!(
                before >= read(ClockId::Monotonic) + ASLEEP / 2,
                "the process is not in a time namespace"
            );
            return;
        }
        let inside = |program: &std::ffi::OsStr| {
            let mut unshare = std::process::Command::new("unshare");
            unshare.args(["--user", "--map-root-user", "--time", "--boottime"]);
            unshare.arg(ASLEEP.as_secs().to_string()).arg(program).env(INSIDE, "1");
            unshare
        };
        if !inside("true".as_ref()).status().is_ok_and(|status| status.success()) {
            return;
        }
        let test = "clock::tests::the_system_clock_is_the_boot_clock";
        // Runs this program even if cargo has replaced its file.
        let program = std::fs::File::open("/proc/self/exe").unwrap();
        let mut child = inside("/proc/self/fd/0".as_ref());
        let child = child.args(["--exact", test]).stdin(program).output().unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
    }

    #[test]
    fn the_system_clock_advances() {
        let start = SystemClock.now();
        while SystemClock.now().since(start) == Duration::ZERO {}
        assert!(SystemClock.now().time_until(start.plus(Duration::from_secs(60))) > Duration::ZERO);
    }
}
