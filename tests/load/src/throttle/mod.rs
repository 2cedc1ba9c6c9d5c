//! Leaves a running process a fifth of a core.

mod quota;
mod signals;

use std::io;
use std::str::FromStr;

use quota::Quota;
use signals::Signals;

/// By which means a process is throttled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottleBy {
    /// By a quota where one can be set, else by signals.
    Any,
    /// By a quota of its control group: 20 ms of processor time in every 100 ms, all threads
    /// together. Needs Linux and the right to make a control group.
    Quota,
    /// By signals: the process runs for 20 ms (SIGCONT) and is stopped for 80 ms (SIGSTOP).
    Signals,
}

impl FromStr for ThrottleBy {
    type Err = ();

    /// Reads `any`, `quota` or `signals`.
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "any" => Ok(Self::Any),
            "quota" => Ok(Self::Quota),
            "signals" => Ok(Self::Signals),
            _ => Err(()),
        }
    }
}

/// Throttles a process until it is dropped.
#[derive(Debug)]
pub struct Throttle {
    means: Means,
}

#[derive(Debug)]
enum Means {
    Quota(#[expect(dead_code, reason = "throttles until it is dropped")] Quota),
    Signals(#[expect(dead_code, reason = "throttles until it is dropped")] Signals),
}

impl Throttle {
    /// Throttles the process with this id, and no other one.
    ///
    /// # Errors
    ///
    /// There is no such process, or the means is not available here.
    pub fn process(id: i32, by: ThrottleBy) -> io::Result<Self> {
        let quota = || Quota::set(id).map(Means::Quota);
        let signals = || Signals::begin(id).map(Means::Signals);
        let means = match by {
            ThrottleBy::Any => quota().or_else(|_| signals()),
            ThrottleBy::Quota => quota(),
            ThrottleBy::Signals => signals(),
        };
        Ok(Self { means: means? })
    }

    /// The means, in words.
    pub fn means(&self) -> &'static str {
        match self.means {
            Means::Quota(_) => "a quota of 20 ms in every 100 ms",
            Means::Signals(_) => "signals: 20 ms running, 80 ms stopped",
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;

    /// A process that needs all the processor time that it can get.
    struct Busy(Child);

    impl Busy {
        fn start() -> Self {
            let shell = Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn();
            Self(shell.unwrap())
        }

        fn id(&self) -> i32 {
            i32::try_from(self.0.id()).unwrap()
        }

        /// The processor time that it has used, in ticks of 10 ms.
        fn ticks(&self) -> u64 {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
            // The fields after the name, which stands in parentheses; user time is the twelfth.
            let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The part of a core that the process gets.
    fn part_of_a_core(busy: &Busy) -> f64 {
        let (begun, before) = (Instant::now(), busy.ticks());
        std::thread::sleep(Duration::from_secs(1));
        let ticks = u32::try_from(busy.ticks() - before).unwrap();
        f64::from(ticks) / 100.0 / begun.elapsed().as_secs_f64()
    }

    fn is_throttled(by: ThrottleBy) {
        let busy = Busy::start();
        let throttle = match Throttle::process(busy.id(), by) {
            // Without the right to make control groups there is nothing to test.
            Err(error) if by == ThrottleBy::Quota => {
                println!("skipped: no quota can be set here: {error}");
                return;
            }
            throttle => throttle.unwrap(),
        };
        let part = part_of_a_core(&busy);
        assert!(part < 0.5, "it got {part} of a core by {}", throttle.means());
        drop(throttle);
        let ticks = busy.ticks();
        let deadline = Instant::now() + Duration::from_secs(60);
        while busy.ticks() < ticks + 50 {
            assert!(Instant::now() < deadline, "it does not run on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_process_that_is_throttled_by_signals_gets_a_fifth_of_a_core() {
        is_throttled(ThrottleBy::Signals);
    }

    #[test]
    fn a_process_that_is_throttled_by_a_quota_gets_a_fifth_of_a_core() {
        is_throttled(ThrottleBy::Quota);
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        assert!(Throttle::process(i32::MAX, ThrottleBy::Any).is_err());
    }
}
