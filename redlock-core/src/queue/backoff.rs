//! Pauses between attempts.

use std::time::Duration;

/// The first pause, before jitter; it grows by half each time.
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(100);
/// A server removes a key up to a millisecond after its time to live.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);

/// The pauses of one waiting caller between its attempts: growing, and jittered by half, so that
/// callers who split the votes among them do not meet again.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// The next pause. Not much longer than what is left of the present holder's lease, so that
    /// the crash of a holder costs no more than its lease.
    pub(crate) fn pause(&mut self, remaining: Option<Duration>) -> Duration {
        let pause = self.next.mul_f64(rand::random_range(0.5..1.0));
        self.next = (self.next * 3 / 2).min(LONGEST);
        match remaining {
            Some(remaining) => pause.min(remaining + AFTER_EXPIRY),
            None => pause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_differ() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..50).map(|_| backoff.pause(None)).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST);
        assert!(pauses.iter().all(|pause| *pause >= FIRST / 2 && *pause <= LONGEST));
        assert!(pauses[20..].iter().all(|pause| *pause >= LONGEST / 2));
        assert_ne!(pauses[30], pauses[31]);
    }

    #[test]
    fn a_pause_ends_with_the_holders_lease() {
        let mut backoff = Backoff::new();
        assert!(backoff.pause(Some(Duration::from_millis(1))) <= Duration::from_millis(3));
    }
}
