//! The evidence that a session is alive.
//!
//! Only the leader of the ensemble ends a session: one session timeout (T) after it has heard of the session, or later. An
//! answered write does not prove that the leader has just heard of the session, because a write that a follower forwards does
//! not count. These prove it:
//!
//! * A new connection: its server asks the leader about the session.
//! * A chain of beats. The node sends a `sync`, which goes through the leader, each T/20. A beat belongs to the chain if its reply
//!   arrived within 3R/8 of the sending of the beat before it, with R = T/4. The first beat reaches its follower within 3R/8. The
//!   next ping of the leader is due within half a tick, which is at most R/4, because T is at least 8 ticks. A pause delays
//!   the ping by 3R/8 at most. So the follower has reported the session before it forwards a beat that is sent R after the first.
//!
//! The leader uses the timeout of the last server that has asked it about the session. So evidence ends with a handshake that
//! has shortened the session (`connect.rs` avoids this).

use std::time::Duration;

use crate::clock::Moment;
use crate::error::NodeError;

/// The evidence about one session. `T` is its timeout, and `R` a quarter of it.
pub(super) struct Evidence {
    timeout: Duration,
    /// The moment before the first connection of the session, or before the handshake that has shortened it. The evidence
    /// does not cover earlier requests.
    began: Moment,
    /// A moment at or after which the leader has certainly heard of the session.
    proven: Moment,
    chain: Option<Chain>,
}

/// Answered beats without a gap.
struct Chain {
    /// When the first beat was sent.
    start: Moment,
    /// When the last beat was sent.
    last: Moment,
}

impl Evidence {
    /// Begins the evidence about a session of this timeout that was made after the moment `began`.
    pub(super) fn new(timeout: Duration, began: Moment) -> Self {
        Self { timeout, began, proven: began, chain: None }
    }

    /// Returns the time between two beats.
    pub(super) fn beat_interval(timeout: Duration) -> Duration {
        timeout / 20
    }

    /// Records a connection whose handshake began at the moment `before` and succeeded. `began` is the moment before the first
    /// connection of its session, which may be a new one. A chain has only beats over the same connection.
    pub(super) fn connected(&mut self, began: Moment, before: Moment) {
        if began > self.began {
            *self = Self::new(self.timeout, began);
        }
        self.proven = self.proven.max(before);
        self.chain = None;
    }

    /// Ends the evidence, because a handshake that began at the moment `before` has shortened the session. The next connection
    /// makes it as long as before.
    pub(super) fn end(&mut self, before: Moment) {
        self.began = self.began.max(before);
        self.chain = None;
    }

    /// Records the reply to a beat.
    pub(super) fn answered(&mut self, sent: Moment, now: Moment) {
        let span = self.span();
        let start = match &self.chain {
            Some(Chain { start, last }) if now.since(*last) <= span * 3 / 8 => *start,
            _ => sent,
        };
        self.chain = Some(Chain { start, last: sent });
        if sent.since(start) >= span {
            self.proven = self.proven.max(Moment::at(sent.since(Moment::at(span))));
        }
    }

    /// Returns whether the session needs a new connection as evidence. In calm times, the latest evidence is at most
    /// 3T/10 old. It gets older than 3T/8 after a gap in the chain, such as a pause of the process.
    pub(super) fn is_stale(&self, now: Moment) -> bool {
        now.since(self.proven) > self.span() * 3 / 2
    }

    /// Returns an error unless the session certainly lives until the end of a lease that a request sent at the moment `sent` has
    /// set. The clocks of this machine and of the leader may differ by 1 % of the timeout.
    pub(super) fn vouch(&self, sent: Moment, lease: Duration) -> Result<(), NodeError> {
        if sent < self.began {
            let text =
                "the session has expired or was shortened, and the node of the lock may be gone";
            return Err(NodeError::Unproven(text.into()));
        }
        let (end, certain) = (sent.plus(lease), self.proven.plus(self.timeout * 99 / 100));
        if end <= certain {
            return Ok(());
        }
        let rest = certain.since(sent);
        Err(NodeError::Unproven(
            format!("the lease is {lease:?}, but the session is only certain to live for {rest:?}")
                .into(),
        ))
    }

    fn span(&self) -> Duration {
        self.timeout / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(40);
    /// T/20.
    const BEAT: u64 = 2_000;

    fn at(millis: u64) -> Moment {
        Moment::at(Duration::from_secs(1000) + Duration::from_millis(millis))
    }

    /// Evidence about a session that was made at the moment 0.
    fn evidence() -> Evidence {
        Evidence::new(T, at(0))
    }

    /// Answers the beats that are sent at these times, after 10 ms each.
    fn answer(evidence: &mut Evidence, times: impl IntoIterator<Item = u64>) {
        for time in times {
            evidence.answered(at(time), at(time + 10));
        }
    }

    /// Returns the proven moment: a lease that ends 99 % of the timeout later is the longest that is vouched for.
    fn proven(evidence: &Evidence) -> u64 {
        let is_vouched = |end: u64| evidence.vouch(at(0), Duration::from_millis(end)).is_ok();
        let longest = 39_600;
        (0..=100_000).step_by(5).take_while(|time| is_vouched(longest + time)).last().unwrap()
    }

    #[test]
    fn a_connection_proves_the_moment_before_it() {
        let mut evidence = evidence();
        assert_eq!(proven(&evidence), 0);
        evidence.connected(at(0), at(5_000));
        assert_eq!(proven(&evidence), 5_000);
    }

    #[test]
    fn a_chain_of_beats_proves_the_moment_a_quarter_of_the_timeout_before_the_last_one() {
        let mut evidence = evidence();
        answer(&mut evidence, (0..5).map(|beat| 100 + beat * BEAT));
        assert_eq!(proven(&evidence), 0, "the chain lasts for 8 of 10 s");
        answer(&mut evidence, [10_099]);
        assert_eq!(proven(&evidence), 0, "a millisecond is missing");
        answer(&mut evidence, [10_100]);
        assert_eq!(proven(&evidence), 100);
        answer(&mut evidence, [10_100 + BEAT]);
        assert_eq!(proven(&evidence), 100 + BEAT);
    }

    /// A follower that was silent for a part of that time may not have reported the session.
    #[test]
    fn a_gap_of_more_than_three_eighths_of_the_span_begins_a_new_chain() {
        let chain = |gap: u64| {
            let mut evidence = evidence();
            answer(&mut evidence, [0, BEAT, 2 * BEAT]);
            // The reply counts, and not the sending.
            evidence.answered(at(3 * BEAT), at(2 * BEAT + gap));
            answer(&mut evidence, [4 * BEAT, 5 * BEAT]);
            evidence
        };
        assert_eq!(proven(&chain(3_751)), 0, "only the connection");
        let mut unbroken = chain(3_750);
        answer(&mut unbroken, [6 * BEAT]);
        assert_eq!(proven(&unbroken), 6 * BEAT - 10_000);
        let mut broken = chain(3_751);
        answer(&mut broken, [6 * BEAT, 7 * BEAT]);
        assert_eq!(proven(&broken), 0);
        answer(&mut broken, [8 * BEAT]);
        assert_eq!(proven(&broken), 3 * BEAT, "the new chain began with the late beat");
    }

    #[test]
    fn a_chain_ends_with_its_connection_and_evidence_never_gets_older() {
        let mut evidence = evidence();
        answer(&mut evidence, [0, BEAT, 2 * BEAT, 3 * BEAT]);
        evidence.connected(at(0), at(7_000));
        answer(&mut evidence, [4 * BEAT, 5 * BEAT]);
        assert_eq!(proven(&evidence), 7_000);
        answer(&mut evidence, [6 * BEAT, 7 * BEAT, 8 * BEAT, 17_500]);
        assert_eq!(proven(&evidence), 7_000, "the chain began at 8 s, and lasts for 9.5 s");
        answer(&mut evidence, [18_000]);
        assert_eq!(proven(&evidence), 8_000);
    }

    #[test]
    fn a_pause_makes_the_evidence_stale() {
        let mut evidence = evidence();
        for time in (0..60_000).step_by(2_000) {
            assert!(!evidence.is_stale(at(time)), "{time}");
            answer(&mut evidence, [time]);
        }
        let last = 58_000;
        assert!(!evidence.is_stale(at(last + 5_000)));
        assert!(evidence.is_stale(at(last + 5_001)));
        evidence.connected(at(0), at(last + 10_000));
        assert!(!evidence.is_stale(at(last + 10_001)));
    }

    #[test]
    fn a_lease_counts_until_the_session_may_end() {
        let mut evidence = evidence();
        evidence.connected(at(0), at(10_000));
        let vouch = |sent: u64, lease: u64| evidence.vouch(at(sent), Duration::from_millis(lease));
        assert_eq!(vouch(30_000, 19_600), Ok(()));
        let error = vouch(30_000, 19_601).unwrap_err().to_string();
        assert!(error.contains("19.601s") && error.contains("19.6s"), "{error}");
        assert!(vouch(60_000, 1).is_err());
        assert!(vouch(30_000, u64::MAX).is_err());
    }

    #[test]
    fn a_new_session_does_not_vouch_for_the_requests_of_the_former_one() {
        let mut evidence = evidence();
        answer(&mut evidence, (0..10).map(|beat| beat * BEAT));
        evidence.connected(at(50_000), at(50_000));
        let error = evidence.vouch(at(49_999), Duration::from_secs(1)).unwrap_err().to_string();
        assert!(error.contains("the session has expired"), "{error}");
        assert_eq!(evidence.vouch(at(50_000), T * 99 / 100), Ok(()));
        assert!(evidence.vouch(at(50_000), T).is_err());
    }
}
