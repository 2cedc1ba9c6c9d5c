//! Detects steps of a server's wall clock.
//!
//! A server counts a lease by its wall clock. A forward step ends leases early, as if the server had
//! forgotten the locks; a backward step makes them last longer.
//!
//! The rule: **a step is detected when the offset between the server's wall clock and the local
//! clock has changed by more than the sum of 50 ms, the mean of the two round trips and 0.1 % of the time
//! between the two readings.**
//!
//! Each reading is compared with the kept reading, and then replaces it unless the new reading is slow. A
//! reading is slow if its round trip is longer than that of the kept reading by more than 2 % of the time
//! between them. If slow readings were kept, they would hide for good each step that is shorter than their
//! round trip. A reading that shows a step is always kept.
//!
//! # Limits
//!
//! Not detected are:
//!
//! * A step that is too small for the rule. Leases of 5 s and more have a margin for a step of 50 ms.
//! * Several small steps: the rule does not add them up.
//! * A clock that drifts by less than 10 % while it is read twice a second. Leases allow for 1 %.
//! * A forward step, if a backward step cancels it before the next reading.
//! * A step after a slow reading that has shown another step, if it is shorter than that reading's round
//!   trip.
//!
//! If the local clock stops, as on a suspended machine whose clock does not count that time, all servers
//! seem to be stepped forward. The effect is the same as that of a step: the leases have aged on the
//! servers, but not in this process.

use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::validity;

/// The pause between two readings, with a `restart_guard` or after a use of the server. With the guard, a step can go
/// unnoticed for this long plus one round trip, and in that time the server may grant a lock that is held.
pub(crate) const READING_INTERVAL: Duration = Duration::from_millis(500);

/// Steps up to this size are not detected. A lease of 5 s has a margin of this size for clock drift (1 %).
const SMALLEST_STEP: Duration = Duration::from_millis(50);

/// The divisor for the allowed drift: synchronized clocks may drift by 1/1000 of the time between two
/// readings. Operating systems slew each of the two clocks by at most half of that. The drift of 1 % that
/// leases allow for would hide a step of half a minute after an hour without readings.
const DRIFT_DIVISOR: u32 = 1000;

/// The time on a server's wall clock, read at an unknown point between two local times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The server's time, counted from 1970.
    server_time: Duration,
    sent: Moment,
    received: Moment,
}

/// A step of a wall clock, by at least this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockStep {
    Forward(Duration),
    Back(Duration),
}

impl Reading {
    /// Takes a reading: `ask` returns the server's time since 1970.
    pub(crate) async fn take<E>(
        clock: &dyn Clock,
        ask: impl Future<Output = Result<Duration, E>>,
    ) -> Result<Self, E> {
        let sent = clock.now();
        let server_time = ask.await?;
        Ok(Self { server_time, sent, received: clock.now() })
    }

    /// Returns the step between this reading and the next one. The next reading replaces this one, unless
    /// the next reading is slow and shows no step.
    pub(crate) fn compare(&mut self, next: Self) -> Option<ClockStep> {
        let pause = next.middle().since(self.middle());
        let uncertainty = self.uncertainty() + next.uncertainty() + pause / DRIFT_DIVISOR;
        let expected = self.server_time.saturating_add(pause);
        let forward = next.server_time.saturating_sub(expected).saturating_sub(uncertainty);
        let back = expected.saturating_sub(next.server_time).saturating_sub(uncertainty);
        let step = if forward > SMALLEST_STEP {
            Some(ClockStep::Forward(forward))
        } else {
            (back > SMALLEST_STEP).then_some(ClockStep::Back(back))
        };
        if step.is_some() || next.uncertainty() <= self.uncertainty() + validity::max_drift(pause) {
            *self = next;
        }
        step
    }

    /// Returns the time from the request to the answer.
    pub(crate) fn round_trip(&self) -> Duration {
        self.received.since(self.sent)
    }

    /// Returns by how many milliseconds the wall clock of the server is ahead of that of this process; negative if it is behind.
    pub(crate) fn offset_ms(&self, clock: &dyn Clock) -> i64 {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let here = clock.unix_time().saturating_sub(clock.now().since(self.middle()));
        millis(self.server_time).saturating_sub(millis(here))
    }

    /// Returns the local time at which the server read its clock, with an error of at most
    /// [`uncertainty`](Self::uncertainty).
    fn middle(&self) -> Moment {
        self.sent.plus(self.uncertainty())
    }

    /// Returns half of the round trip.
    fn uncertainty(&self) -> Duration {
        self.round_trip() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::fake::FakeClock;

    /// Returns a reading of a server whose clock is ahead of ours by `ahead`. `at` is when the
    /// command was sent, `there` and `back` are the times of the command and of the reply on their
    /// way. All in milliseconds.
    fn look(at: u64, there: u64, back: u64, ahead: i64) -> Reading {
        let begun = FakeClock::default().now();
        let after = |millis| begun.plus(Duration::from_millis(millis));
        let server_time = (at + there).checked_add_signed(1_790_000_000_000 + ahead).unwrap();
        let server_time = Duration::from_millis(server_time);
        Reading { server_time, sent: after(at), received: after(at + there + back) }
    }

    /// Returns the step in milliseconds, negative for a step back.
    fn found(step: Option<ClockStep>) -> i64 {
        let millis = |by: Duration| i64::try_from(by.as_millis()).unwrap();
        match step {
            Some(ClockStep::Forward(by)) => millis(by),
            Some(ClockStep::Back(by)) => -millis(by),
            None => 0,
        }
    }

    /// A name, the readings of a clock, and for each of them the step that it shows, less the
    /// uncertainty.
    type Case = (&'static str, &'static [((u64, u64, u64, i64), i64)]);

    #[rustfmt::skip]
    const CASES: &[Case] = &[
        ("a step is found in both directions and reported once", &[
            ((500, 1, 1, 60_000), 59_997),
            ((1000, 1, 1, 60_000), 0),
            ((1500, 1, 1, -3_540_000), -3_599_997),
            ((2000, 1, 1, -3_540_000), 0),
        ]),
        ("a step of 50 ms is not found", &[((500, 1, 1, 52), 0), ((1000, 1, 1, 0), 0)]),
        ("a step of 60 ms is found", &[((500, 1, 1, 60), 57), ((1000, 1, 1, 0), -57)]),
        ("half of a slow round trip explains a difference of 90 ms", &[((500, 40, 40, 90), 0)]),
        ("a difference of 100 ms is a step in spite of a slow round trip", &[((500, 40, 40, 100), 58)]),
        ("a slow reply is no step", &[((500, 1, 9999, 0), 0), ((11_000, 1, 1, 0), 0)]),
        ("a slow command is no step", &[((500, 9999, 1, 0), 0), ((11_000, 1, 1, 0), 0)]),
        ("a slow reply hides a step only until the next fast one", &[
            ((500, 1, 9999, 1000), 0),
            ((11_000, 1, 1, 1000), 987),
        ]),
        ("a server that stays slow is compared with slow readings", &[
            ((500, 50, 50, 0), 0),
            ((6000, 50, 50, 0), 0),
            ((6500, 50, 50, 140), 0),
            ((7000, 50, 50, 300), 159 - 100),
        ]),
        ("a minute explains a drift of 60 ms", &[((60_000, 1, 1, 110), 0)]),
        ("a larger difference after a minute is a step", &[((60_000, 1, 1, -120), -58)]),
        ("an hour explains a drift of 3.6 s", &[((3_600_000, 1, 1, 3600), 0)]),
        ("a larger difference after an hour is a step", &[((3_600_000, 1, 1, 3700), 98)]),
        ("small steps do not add up", &[((500, 1, 1, 45), 0), ((1000, 1, 1, 90), 0)]),
        ("a clock may drift slowly", &[((500, 1, 1, -45), 0), ((1000, 1, 1, -90), 0)]),
    ];

    #[test]
    fn a_step_beyond_the_possible_drift_is_noticed() {
        for (case, looks) in CASES {
            let mut kept = look(0, 1, 1, 0);
            for ((at, there, back, ahead), step) in *looks {
                let next = look(*at, *there, *back, *ahead);
                assert_eq!(found(kept.compare(next)), *step, "{case}: at {at}");
            }
        }
    }

    #[test]
    fn an_absurd_time_counts_as_a_step() {
        let mut kept = look(0, 1, 1, 0);
        let nonsense = Reading { server_time: Duration::MAX, ..look(500, 1, 1, 0) };
        assert!(matches!(kept.compare(nonsense), Some(ClockStep::Forward(_))));
        assert!(matches!(kept.compare(look(1000, 1, 1, 0)), Some(ClockStep::Back(_))));
    }
}
