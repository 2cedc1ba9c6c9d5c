//! The evidence about one session, as ages in ticks.

use super::rules::{Rule, Rules};

/// The times of a session in ticks. T is its timeout, and R a quarter of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    /// The session timeout, T. All greater ages are equal.
    pub(super) timeout: u8,
    /// How long a chain lasts that proves something, R.
    pub(super) span: u8,
    /// The longest lease, T/2.
    pub(super) lease: u8,
}

impl Times {
    /// Returns whether a reply that arrives so many ticks after the sending of the beat before it ends a chain.
    ///
    /// The library allows 3R/8. In the model a reply can take no time, but in reality it takes some, so that its own beat was
    /// sent less than 3R/8 after the beat before.
    pub(super) fn is_gap(self, ticks: u8) -> bool {
        8 * ticks >= 3 * self.span
    }
}

/// The evidence about one session. It equals `Evidence` of `evidence.rs` in redlock-core, but has ages in place of moments, so
/// that states that differ only in the time are one state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Evidence {
    /// Ticks since a moment at or after which the leader has certainly heard of the session.
    proven: u8,
    chain: Option<Chain>,
}

/// Answered beats without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Chain {
    /// Ticks since the first beat was sent.
    start: u8,
    /// Ticks since the last beat was sent.
    last: u8,
}

impl Evidence {
    /// Learns when the leader has last heard of the session.
    pub(super) fn learn(&mut self, age: u8) {
        self.proven = age;
    }

    /// Returns whether the leader has heard of the session at or after the proven moment. `age`: the ticks since then.
    pub(super) fn is_true(self, age: u8) -> bool {
        age <= self.proven
    }

    /// Records a connection whose handshake begins and succeeds now.
    pub(super) fn connected(&mut self) {
        *self = Self::default();
    }

    /// Records the reply to a beat that was sent `sent` ticks ago.
    pub(super) fn answered(&mut self, sent: u8, times: Times, rules: Rules) {
        let has_gap = |last: u8| times.is_gap(last) && rules.keep(Rule::ChainWithoutGaps);
        let start = match self.chain {
            Some(Chain { start, last }) if !has_gap(last) => start,
            _ => sent,
        };
        self.chain = Some(Chain { start, last: sent });
        if start - sent >= times.span {
            let age = if rules.keep(Rule::AgeOfTheChain) { times.span } else { 0 };
            self.proven = self.proven.min(sent + age);
        }
    }

    /// Returns whether the session certainly lives until the end of the longest lease, which was asked for `age` ticks ago.
    pub(super) fn vouches(self, age: u8, times: Times) -> bool {
        self.proven + times.lease <= times.timeout + age
    }

    /// Advances the time by a tick. Ages that make no difference any more become equal.
    pub(super) fn advance(&mut self, times: Times, rules: Rules) {
        self.proven = times.timeout.min(self.proven + 1);
        self.chain = self.chain.and_then(|Chain { start, last }| {
            let last = times.timeout.min(last + 1);
            let start = (start + 1).min(last + times.span);
            let is_over = times.is_gap(last) && rules.keep(Rule::ChainWithoutGaps);
            (!is_over).then_some(Chain { start, last })
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::library;
    use super::*;
    use crate::clock::Moment;

    const TIMES: Times = Times { timeout: 16, span: 4, lease: 8 };
    const TICK: Duration = Duration::from_secs(1);

    #[derive(Debug, Clone, Copy)]
    enum Event {
        Tick,
        Connected,
        /// The reply to a beat that was sent so many ticks ago.
        Answered(u8),
    }

    /// Checks that the model and the library prove the same moment after these events.
    fn check(events: &[Event]) {
        let start = Duration::from_secs(1000);
        let (mut now, timeout) = (start, TICK * u32::from(TIMES.timeout));
        let mut model = Evidence::default();
        let mut library = library::Evidence::new(timeout, Moment::at(start));
        for event in events {
            match *event {
                Event::Tick => {
                    now += TICK;
                    model.advance(TIMES, Rules::KEPT);
                }
                Event::Connected => {
                    model.connected();
                    library.connected(Moment::at(start), Moment::at(now));
                }
                Event::Answered(age) => {
                    let sent = now.saturating_sub(TICK * u32::from(age));
                    model.answered(age, TIMES, Rules::KEPT);
                    // Each reply takes some time.
                    let latency = Duration::from_nanos(1);
                    library.answered(Moment::at(sent), Moment::at(now + latency));
                }
            }
        }
        // A lease that ends 99 % of the timeout after the proven moment is the longest that counts.
        let proven = now.saturating_sub(TICK * u32::from(model.proven));
        let longest = (proven + timeout * 99 / 100).saturating_sub(start);
        assert!(library.vouch(Moment::at(start), longest).is_ok(), "{events:?}");
        let longer = longest + Duration::from_nanos(1);
        assert!(library.vouch(Moment::at(start), longer).is_err(), "{events:?}");
    }

    /// Tries each sequence of a tick and ten events that an ensemble can cause: replies arrive in the order of the beats.
    #[test]
    fn the_model_and_the_library_have_the_same_evidence() {
        let mut sequences = 0;
        let mut tried = vec![vec![Event::Tick]];
        while let Some(events) = tried.pop() {
            check(&events);
            sequences += 1;
            if events.len() == 11 {
                continue;
            }
            // The age of the last answered beat, or of the session.
            let mut since = 0;
            for event in &events {
                since = match *event {
                    Event::Tick => since + 1,
                    Event::Connected => 0,
                    Event::Answered(age) => age,
                };
            }
            let next = (0..=since.min(2)).map(Event::Answered);
            for event in [Event::Tick, Event::Connected].into_iter().chain(next) {
                tried.push([&events[..], &[event]].concat());
            }
        }
        assert!(sequences > 300_000, "{sequences}");
    }
}
