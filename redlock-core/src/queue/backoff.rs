//! Pauses between attempts, and when a reader asks for a turn of the readers.

use std::time::Duration;

use crate::ballot::Ballot;
use crate::jitter::jitter;
use crate::lock::{LockSpec, Mode};
use crate::node::{Subscription, TURN};

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

/// Returns how long to wait for a published release after a refusal without the holder's remaining time to
/// live.
pub(crate) fn wake_retry_delay() -> Duration {
    jitter(SHORTEST_WAKE_RETRY..LONGEST_WAKE_RETRY)
}

/// Returns how long to wait for a published release while another caller holds the lock. The pause ends with
/// the holder's lease, so that a crashed holder delays the waiter no longer than that.
pub(crate) fn poll_pause(remaining: Duration) -> Duration {
    jitter(SHORTEST_POLL..LONGEST_POLL).min(remaining + AFTER_EXPIRY)
}

/// The pauses between attempts that split the votes, while possibly no caller holds the lock. The pauses
/// grow, and each is jittered by up to half, so that the same callers do not collide again.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(jitter(0.5..1.0));
        self.next = (self.next * 3 / 2).min(LONGEST);
        pause
    }
}

/// The patience of a reader that waits while exclusive callers get the lock one after another.
#[derive(Debug)]
pub(super) struct Patience {
    /// How many further releases the reader lets pass.
    left: Option<u32>,
    /// The requests for a turn of the readers, which last as long as the reader waits.
    turn: Vec<Subscription>,
}

impl Patience {
    /// How many releases a reader lets pass before it asks for a turn. About one more passes until the nodes know. A
    /// reader that asked for a turn at once would delay more exclusive callers than it gains.
    const RELEASES: u32 = 3;

    pub(super) fn new(mode: Mode) -> Self {
        Self { left: mode.is_shared().then_some(Self::RELEASES), turn: Vec::new() }
    }

    /// Records whether a release has passed the waiter. After the last release that it lets pass, asks the nodes for a
    /// turn.
    pub(super) fn record(&mut self, ballot: &Ballot, spec: &LockSpec, has_passed: bool) {
        let Some(left) = self.left.as_mut().filter(|_| has_passed) else { return };
        *left -= 1;
        if *left == 0 {
            self.left = None;
            let turns = ballot.nodes.iter().filter_map(|node| node.turns());
            self.turn = turns.map(|turns| turns.request_turn(spec)).collect();
        }
    }

    /// Limits the pause of a reader that has asked for a turn, so that it does not miss the turn.
    pub(super) fn limit(&self, pause: Duration) -> Duration {
        if self.turn.is_empty() { pause } else { pause.min(jitter(TURN / 4..TURN / 2)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit_and_vary() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..50).map(|_| backoff.pause()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST);
        assert!(pauses.iter().all(|pause| *pause >= FIRST / 2 && *pause <= LONGEST));
        assert!(pauses[20..].iter().all(|pause| *pause >= LONGEST / 2));
        assert_ne!(pauses[30], pauses[31]);
    }

    #[test]
    fn a_poll_does_not_sleep_past_the_lease_of_the_holder() {
        assert_eq!(poll_pause(Duration::from_millis(1)), Duration::from_millis(3));
        let long = poll_pause(Duration::from_secs(60));
        assert!((SHORTEST_POLL..LONGEST_POLL).contains(&long), "{long:?}");
    }
}
