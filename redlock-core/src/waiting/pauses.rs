//! How long a waiter pauses, and when a reader asks for a turn of the readers.
//!
//! No clock and no source of random numbers: the caller passes both.

use std::time::Duration;

use super::{Instant, TURN};

/// The first pause, before jitter. Each pause is 1.5 times as long as the previous one.
const FIRST: Duration = Duration::from_millis(4);
/// The longest pause, before jitter. It suffices for a dozen processes with a round trip of 10 ms: one
/// process has to be alone for the time of one attempt.
const LONGEST: Duration = Duration::from_millis(400);
/// Added to the rest of a lease: a server removes a key up to a millisecond after its time to live.
pub(super) const AFTER_EXPIRY: Duration = Duration::from_millis(2);

/// How long a waiter sleeps at most before it asks the nodes again, because some holders do not publish
/// their release, and messages may get lost.
const SHORTEST_POLL: Duration = Duration::from_millis(250);
const LONGEST_POLL: Duration = Duration::from_millis(500);

/// How long a waiter that was woken, but came too late, waits for the next published release before it looks
/// up the holder's remaining time to live.
const SHORTEST_WAKE_RETRY: Duration = Duration::from_millis(10);
const LONGEST_WAKE_RETRY: Duration = Duration::from_millis(20);

/// A wait in one queue that was shorter than this did not wait for a holder.
pub(super) const SHORT_WAIT: Duration = Duration::from_millis(8);

/// The time of an event, and the source of the random part of a pause.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) at: Instant,
    /// Returns a random number from zero to one.
    pub(super) chance: fn() -> f64,
}

impl Now {
    /// Returns a random time between two times.
    pub(super) fn between(&self, shortest: Duration, longest: Duration) -> Duration {
        shortest + longest.saturating_sub(shortest).mul_f64((self.chance)())
    }

    /// Returns how long to wait for a published release after a refusal without the holder's remaining time to
    /// live.
    pub(super) fn wake_retry_delay(&self) -> Duration {
        self.between(SHORTEST_WAKE_RETRY, LONGEST_WAKE_RETRY)
    }

    /// Returns how long to wait for a published release while another caller holds the lock. The pause ends with
    /// the holder's lease, so that a crashed holder delays the waiter no longer than that.
    pub(super) fn poll_pause(&self, remaining: Duration) -> Duration {
        self.between(SHORTEST_POLL, LONGEST_POLL).min(remaining.saturating_add(AFTER_EXPIRY))
    }
}

/// The pauses between attempts that split the votes, while possibly no caller holds the lock. The pauses
/// grow, and each is jittered by up to half, so that the same callers do not collide again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST }
    }

    pub(super) fn pause(&mut self, now: &Now) -> Duration {
        let pause = now.between(self.next / 2, self.next);
        self.next = (self.next * 3 / 2).min(LONGEST);
        pause
    }
}

/// The patience of a reader that waits while exclusive callers get the lock one after another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Patience {
    /// The caller is no reader, or the nodes give no turns.
    Endless,
    /// The reader lets this number of further releases pass.
    Left(u32),
    /// The reader asks for a turn of the readers, for as long as it waits.
    Over,
}

impl Patience {
    /// How many releases a reader lets pass before it asks for a turn. About one more passes until the nodes know. A
    /// reader that asked for a turn at once would delay more exclusive callers than it gains.
    const RELEASES: u32 = 3;

    pub(super) fn new(has_turns: bool) -> Self {
        if has_turns { Self::Left(Self::RELEASES) } else { Self::Endless }
    }

    /// Records that a release has passed the waiter.
    pub(super) fn record_release(&mut self) {
        match self {
            Self::Left(1) => *self = Self::Over,
            Self::Left(left) => *left -= 1,
            Self::Endless | Self::Over => {}
        }
    }

    /// Limits the pause of a reader that has asked for a turn, so that it does not miss the turn.
    pub(super) fn limit(&self, pause: Duration, now: &Now) -> Duration {
        if *self == Self::Over { pause.min(now.between(TURN / 4, TURN / 2)) } else { pause }
    }
}
