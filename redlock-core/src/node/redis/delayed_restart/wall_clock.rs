//! What a server's wall clock does, compared with the clock that leases are measured on here.
//!
//! A Redis server counts a key's time to live by its wall clock. Stepped forward, it ends leases
//! early, as if it had forgotten the locks; stepped back, it keeps them for longer.
//!
//! By how much the server's clock is ahead of ours is known up to the time that asking took: it was
//! read at some point between the question and the answer. From one reading to the next that may
//! change by what clocks [may run apart](validity::apart), and the two readings have to agree after
//! that. In a long time they do not run apart as far as that, or nobody keeps them: otherwise a step of
//! half a minute would go unseen after an hour in which nothing was asked. What one reading leaves open another narrows down, so that a slow answer neither looks like a
//! step nor makes the next one harder to see. A clock that creeps away faster than it may is found
//! when it has gained as much as a step has to.
//!
//! Where it was our clock that stood still, as on a machine that is suspended and does not count that
//! time, all servers seem to be stepped forward. That is right in effect: our leases have not aged
//! meanwhile, and theirs have.

use std::ops::RangeInclusive;
use std::time::Duration;

use bb8_redis::redis::{ErrorKind, RedisError, Value};

use crate::clock::{Clock, Moment};
use crate::validity;

/// A smaller step is not told from a clock that is being corrected, as those that keep time do. It is
/// the margin of a lease of 5 s; what a shorter lease loses by such a step is not made up for.
const SMALLEST_STEP: i64 = 50_000;

/// For how long clocks are granted all of what they may run apart. After that it is one part in a
/// thousand: operating systems slew a clock by half of that at most, on either side.
const BRIEFLY: Duration = Duration::from_secs(60);
const SLEWING: u32 = 1000;

/// What a server's wall clock showed, at some point between two of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Since 1970.
    told: Duration,
    sent: Moment,
    received: Moment,
}

/// By how much a wall clock was stepped at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Forward(Duration),
    Back(Duration),
}

/// A server's wall clock, as far as it is known here.
#[derive(Debug, Clone)]
pub(crate) struct WallClock {
    first: Reading,
    last: Reading,
    /// By how many microseconds it has gained on ours since the first reading, when it was read last.
    gained: RangeInclusive<i64>,
}

impl Reading {
    /// Asks, and reads the answer.
    pub(crate) async fn take(
        clock: &dyn Clock,
        ask: impl Future<Output = Result<Value, RedisError>>,
    ) -> Result<Self, RedisError> {
        let sent = clock.now();
        let answer = ask.await?;
        let received = clock.now();
        let told = read(&answer).ok_or((ErrorKind::UnexpectedReturnType, "this is no time"))?;
        Ok(Self { told, sent, received })
    }
}

impl WallClock {
    pub(crate) fn new(first: Reading) -> Self {
        let mut clock = Self { first, last: first, gained: 0..=0 };
        clock.gained = clock.gained_by(&first);
        clock
    }

    /// Compares with a later reading.
    pub(crate) fn read_again(&mut self, reading: Reading) -> Option<Step> {
        let apart = micros(apart(reading.received.since(self.last.sent)));
        let least = self.gained.start().saturating_sub(apart);
        let most = self.gained.end().saturating_add(apart);
        let found = self.gained_by(&reading);
        let forward = found.start().saturating_sub(most);
        let back = least.saturating_sub(*found.end());
        self.last = reading;
        if forward > SMALLEST_STEP || back > SMALLEST_STEP {
            self.gained = found;
            let by = |micros: i64| Duration::from_micros(micros.unsigned_abs());
            return Some(if forward > back {
                Step::Forward(by(forward))
            } else {
                Step::Back(by(back))
            });
        }
        // What does not agree by less than a step is kept as it was, so that it adds up.
        self.gained = *found.start().clamp(&least, &most)..=*found.end().clamp(&least, &most);
        None
    }

    fn gained_by(&self, reading: &Reading) -> RangeInclusive<i64> {
        let theirs = micros(reading.told).saturating_sub(micros(self.first.told));
        let ours = |moment: Moment| micros(moment.since(self.first.sent));
        let (least, most) = (ours(reading.sent), ours(reading.received));
        theirs.saturating_sub(most)..=theirs.saturating_sub(least)
    }
}

/// How far clocks that are kept may run apart in the time between two readings.
fn apart(time: Duration) -> Duration {
    validity::apart(time.min(BRIEFLY)) + time.saturating_sub(BRIEFLY) / SLEWING
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The answer to `TIME`: seconds, and microseconds.
fn read(answer: &Value) -> Option<Duration> {
    let Value::Array(parts) = answer else { return None };
    let number = |part: &Value| match part {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    };
    let [seconds, micros] = &parts[..] else { return None };
    let micros = Duration::from_micros(number(micros)?);
    Duration::from_secs(number(seconds)?).checked_add(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::fake::FakeClock;

    const MILLI: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// A server whose clock a test moves, and the way to it.
    struct Server {
        ours: FakeClock,
        theirs: Duration,
    }

    impl Server {
        fn new() -> Self {
            Self { ours: FakeClock::default(), theirs: Duration::from_secs(1_790_000_000) }
        }

        fn pass(&mut self, time: Duration) {
            self.pass_at(time, 1.0);
        }

        /// Its clock runs at another rate than ours.
        fn pass_at(&mut self, time: Duration, rate: f64) {
            self.ours.advance(time);
            self.theirs += time.mul_f64(rate);
        }

        fn read(&mut self) -> Reading {
            self.read_slowly(MILLI, MILLI)
        }

        fn read_slowly(&mut self, there: Duration, back: Duration) -> Reading {
            let sent = self.ours.now();
            self.pass(there);
            let told = self.theirs;
            self.pass(back);
            Reading { told, sent, received: self.ours.now() }
        }
    }

    fn is_about(step: Option<Step>, by: Duration) {
        let least = by.mul_f64(0.98).saturating_sub(5 * MILLI);
        match step {
            Some(Step::Forward(found) | Step::Back(found)) => {
                assert!((least..=by).contains(&found), "{found:?} for {by:?}");
            }
            None => panic!("{by:?} was not found"),
        }
    }

    #[test]
    fn a_step_is_found_in_both_directions_and_told_once() {
        let mut server = Server::new();
        let mut clock = WallClock::new(server.read());
        server.pass(SECOND / 2);
        assert_eq!(clock.read_again(server.read()), None);
        server.theirs += 60 * SECOND;
        server.pass(SECOND / 2);
        let step = clock.read_again(server.read());
        is_about(step, 60 * SECOND);
        assert!(matches!(step, Some(Step::Forward(_))));
        server.pass(SECOND / 2);
        assert_eq!(clock.read_again(server.read()), None, "told before");
        server.theirs -= 3600 * SECOND;
        let step = clock.read_again(server.read());
        is_about(step, 3600 * SECOND);
        assert!(matches!(step, Some(Step::Back(_))));
    }

    #[test]
    fn a_small_step_is_found_soon_after_a_reading() {
        for (by, found) in [(40 * MILLI, false), (80 * MILLI, true)] {
            let mut server = Server::new();
            let mut clock = WallClock::new(server.read());
            server.pass(SECOND / 2);
            server.theirs += by;
            assert_eq!(clock.read_again(server.read()).is_some(), found, "{by:?}");
        }
    }

    /// Steps that are too small to be told add up.
    #[test]
    fn many_small_steps_are_found() {
        let mut server = Server::new();
        let mut clock = WallClock::new(server.read());
        let mut read = || {
            server.pass(SECOND / 2);
            server.theirs += 30 * MILLI;
            clock.read_again(server.read())
        };
        assert_eq!(read(), None);
        let step = std::iter::repeat_with(read).take(3).find_map(|step| step);
        assert!(matches!(step, Some(Step::Forward(_))), "{step:?}");
    }

    /// The answer, or the question, was on its way for long: nothing is known of the time between.
    #[test]
    fn a_slow_round_trip_is_no_step() {
        for (there, back) in [(10 * SECOND, MILLI), (MILLI, 10 * SECOND)] {
            let mut server = Server::new();
            let mut clock = WallClock::new(server.read_slowly(there, back));
            assert_eq!(clock.read_again(server.read()), None);
            assert_eq!(clock.read_again(server.read_slowly(back, there)), None);
            assert_eq!(clock.read_again(server.read()), None);
            // And hides none for longer than until the next.
            server.theirs += SECOND;
            assert_eq!(clock.read_again(server.read_slowly(MILLI, 10 * SECOND)), None, "may be");
            assert!(matches!(clock.read_again(server.read()), Some(Step::Forward(_))));
        }
    }

    #[test]
    fn clocks_that_run_apart_as_they_may_are_steady() {
        let (brief, long) = ([1, 1, 1, 60, 1, 120, 1, 1, 1], [1, 1, 1, 3600, 1, 60, 86_400, 1, 1]);
        let at =
            |rates: &[f64], pauses| rates.iter().map(|rate| (*rate, pauses)).collect::<Vec<_>>();
        let all = [at(&[0.9905, 1.0095], brief), at(&[0.9991, 0.9995, 1.0, 1.0005, 1.0009], long)];
        for (rate, pauses) in all.into_iter().flatten() {
            let mut server = Server::new();
            let mut clock = WallClock::new(server.read());
            for seconds in pauses {
                server.pass_at(seconds * SECOND / 2, rate);
                let step = clock.read_again(server.read());
                assert_eq!(step, None, "at {rate} after {seconds} s");
            }
        }
    }

    /// Nobody asked meanwhile, or could.
    #[test]
    fn a_step_in_a_long_pause_is_found() {
        for (pause, by) in [(600, 5), (3600, 30), (86_400, 120)] {
            let mut server = Server::new();
            let mut clock = WallClock::new(server.read());
            server.pass_at(pause * SECOND / 2, 1.0005);
            server.theirs += by * SECOND;
            server.pass_at(pause * SECOND / 2, 1.0005);
            let step = clock.read_again(server.read());
            assert!(matches!(step, Some(Step::Forward(_))), "{by} s in {pause} s: {step:?}");
        }
    }

    /// Each reading by itself looks right.
    #[test]
    fn a_clock_that_creeps_away_faster_is_found() {
        for (rate, most) in [(1.02, 15), (1.1, 3), (0.98, 15)] {
            let mut server = Server::new();
            let mut clock = WallClock::new(server.read());
            let step = (0..most).find_map(|_| {
                server.pass_at(SECOND / 2, rate);
                clock.read_again(server.read())
            });
            assert_eq!(matches!(step, Some(Step::Forward(_))), rate > 1.0, "at {rate}: {step:?}");
            assert!(step.is_some(), "at {rate}");
        }
    }

    /// Ours did not move, and the servers' leases ran on.
    #[test]
    fn a_clock_of_ours_that_stood_still_looks_like_a_step_forward() {
        let mut server = Server::new();
        let mut clock = WallClock::new(server.read());
        server.theirs += 60 * SECOND;
        assert!(matches!(clock.read_again(server.read()), Some(Step::Forward(_))));
        // Where it counts the time asleep there is none.
        let mut server = Server::new();
        let mut clock = WallClock::new(server.read());
        server.theirs += 60 * SECOND;
        server.ours.suspend(60 * SECOND);
        assert_eq!(clock.read_again(server.read()), None);
    }

    #[test]
    fn only_a_time_is_read() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let time = Value::Array(vec![text("1790000000"), text("000042")]);
        let expected = Duration::from_secs(1_790_000_000) + Duration::from_micros(42);
        assert_eq!(read(&time), Some(expected));
        for other in [
            Value::Nil,
            Value::Int(1_790_000_000),
            Value::Array(vec![text("1790000000")]),
            Value::Array(vec![text("1790000000"), text("-1")]),
            Value::Array(vec![text("x"), text("1")]),
        ] {
            assert_eq!(read(&other), None, "{other:?}");
        }
        // Nonsense is a step, and no panic.
        let mut server = Server::new();
        let mut clock = WallClock::new(server.read());
        let most = Value::Array(vec![text(&u64::MAX.to_string()), text("0")]);
        let reading = Reading { told: read(&most).unwrap(), ..server.read() };
        assert!(matches!(clock.read_again(reading), Some(Step::Forward(_))));
        assert!(matches!(clock.read_again(server.read()), Some(Step::Back(_))));
    }
}
