//! The clock that measures leases.

use std::fmt;
use std::time::Duration;

/// A source of the time. Tests use their own clock, so that they need not wait.
pub(crate) trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the present time.
    fn now(&self) -> Moment;
}

/// A point in time, on two clocks.
///
/// A monotonic clock stops while the machine is suspended, but the leases on the servers and the boot clock
/// continue. The clock that has advanced further counts, so that a deadline is the earlier of the two (every
/// lock has a deadline).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    monotonic: Duration,
    boot: Duration,
}

impl Moment {
    /// Returns the moment at which both clocks show this time.
    pub(crate) fn at(time: Duration) -> Self {
        Self { monotonic: time, boot: time }
    }

    /// Returns the time that has passed since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let monotonic = self.monotonic.saturating_sub(earlier.monotonic);
        let boot = self.boot.saturating_sub(earlier.boot);
        monotonic.max(boot)
    }

    /// Returns the moment `duration` later.
    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self {
            monotonic: self.monotonic.saturating_add(duration),
            boot: self.boot.saturating_add(duration),
        }
    }

    /// Returns the time that is left until `deadline`: zero when either clock has reached it.
    pub(crate) fn time_until(self, deadline: Self) -> Duration {
        let monotonic = deadline.monotonic.saturating_sub(self.monotonic);
        let boot = deadline.boot.saturating_sub(self.boot);
        monotonic.min(boot)
    }

    /// Returns whether either clock has reached `deadline`.
    pub(crate) fn has_reached(self, deadline: Self) -> bool {
        self.time_until(deadline).is_zero()
    }
}

/// The clocks of the operating system.
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

    /// A clock that stands still until it is moved.
    #[derive(Debug, Clone)]
    pub(crate) struct FakeClock(Arc<Mutex<Moment>>);

    impl Default for FakeClock {
        fn default() -> Self {
            let start = Duration::from_secs(1000);
            Self(Arc::new(Mutex::new(Moment { monotonic: start, boot: start })))
        }
    }

    impl FakeClock {
        pub(crate) fn advance(&self, duration: Duration) {
            let mut now = self.0.lock();
            *now = now.plus(duration);
        }

        /// As if the machine had been suspended: only the boot clock moves.
        pub(crate) fn suspend(&self, duration: Duration) {
            self.0.lock().boot += duration;
        }
    }

    impl Clock for FakeClock {
        fn now(&self) -> Moment {
            *self.0.lock()
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
            let now = self.start.elapsed();
            Moment { monotonic: now, boot: now }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::FakeClock;
    use super::*;

    #[test]
    fn the_time_of_a_suspension_counts() {
        let clock = FakeClock::default();
        let start = clock.now();
        let deadline = start.plus(Duration::from_secs(5));
        clock.advance(Duration::from_secs(1));
        clock.suspend(Duration::from_secs(3));
        assert_eq!(clock.now().since(start), Duration::from_secs(4));
        assert_eq!(clock.now().time_until(deadline), Duration::from_secs(1));
        clock.suspend(Duration::from_secs(60));
        assert_eq!(clock.now().time_until(deadline), Duration::ZERO);
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
        for clock in [now.boot, now.monotonic] {
            assert!(before <= clock && clock <= after, "{before:?} {clock:?} {after:?}");
        }
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
        let program = std::env::current_exe().unwrap();
        let child = inside(program.as_os_str()).args(["--exact", test]).output().unwrap();
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
