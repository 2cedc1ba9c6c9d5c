//! The owner of the locks of a manager, which makes their tokens.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Dialect, OwnerLabel, Token};
use crate::clock::{Clock, Moment};

/// The owner of the locks of a manager.
#[derive(Debug, Default)]
pub(crate) struct LockOwner {
    label: Option<OwnerLabel>,
    infix: &'static str,
    /// A whole second of the clock, and behind it the seconds since 1970 at that time: the wall clock is read at most once in
    /// a second.
    second: AtomicU64,
}

impl LockOwner {
    /// Creates an owner. Without a label, the nodes store neither label nor time.
    pub(crate) fn new(label: Option<OwnerLabel>) -> Self {
        let infix = label.as_ref().map_or("", OwnerLabel::infix);
        Self { label, infix, second: AtomicU64::new(0) }
    }

    pub(crate) fn label(&self) -> Option<&OwnerLabel> {
        self.label.as_ref()
    }

    /// Returns a fresh token for an attempt that begins now.
    pub(crate) fn token(&self, dialect: Dialect, clock: &dyn Clock, now: Moment) -> Token {
        let token = Token::random(dialect);
        // The Java client parses the owner of its lock.
        if self.infix.is_empty() || dialect == Dialect::Redisson {
            return token;
        }
        token.labelled(self.infix, self.seconds(clock, now))
    }

    /// Returns the seconds since 1970.
    #[allow(clippy::cast_possible_truncation, reason = "the lower half of each value is meant")]
    fn seconds(&self, clock: &dyn Clock, now: Moment) -> u32 {
        let this_second = now.since(Moment::default()).as_secs() as u32;
        let known = self.second.load(Ordering::Relaxed);
        if known != 0 && (known >> 32) as u32 == this_second {
            return known as u32;
        }
        let seconds = u32::try_from(clock.unix_time().as_secs()).unwrap_or(u32::MAX);
        self.second.store(u64::from(this_second) << 32 | u64::from(seconds), Ordering::Relaxed);
        seconds
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::clock::fake::FakeClock;

    fn owner(label: &str) -> LockOwner {
        LockOwner::new(Some(OwnerLabel::new(label).unwrap()))
    }

    #[test]
    fn a_token_has_the_label_and_the_second_of_its_attempt() {
        let (owner, clock) = (owner("shop-7f9c:4121"), FakeClock::default());
        for (millis, expected) in [(0, 0), (999, 0), (1, 1), (2500, 3)] {
            clock.advance(Duration::from_millis(millis));
            let token = owner.token(Dialect::Plain, &clock, clock.now());
            assert_eq!(token.label().as_ref().map(OwnerLabel::as_str), Some("shop-7f9c:4121"));
            let since = token.since().unwrap().duration_since(UNIX_EPOCH).unwrap();
            assert_eq!(since.as_secs(), FakeClock::UNIX_TIME + expected);
        }
    }

    #[test]
    fn redisson_and_an_owner_without_a_label_have_neither_label_nor_time() {
        let clock = FakeClock::default();
        for (owner, dialect) in
            [(owner("shop"), Dialect::Redisson), (LockOwner::default(), Dialect::Plain)]
        {
            let token = owner.token(dialect, &clock, clock.now());
            assert_eq!((token.label(), token.since()), (None, None), "{dialect:?}");
        }
    }
}
