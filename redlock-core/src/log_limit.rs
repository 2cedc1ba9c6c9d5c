//! Limits how often similar events are logged.
//!
//! The arguments of `log_limited!` are the limit, the kind, the subject (a node or `""`), the level, and the rest as in
//! `tracing`. The field `lock` has the key. `manager/log_tests.rs` and `redlock-axum/tests/log_limit.rs` test the limit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Moment, SystemClock};
use crate::error::{Vote, Votes};

/// The time for which one log line represents all similar events.
const PERIOD: Duration = Duration::from_secs(1);
/// The maximum number of counts, of all kinds together.
const MAX_COUNTS: usize = 64;

/// Allows one log line per second for each kind of event and subject, and counts the suppressed events.
///
/// When a quorum of nodes is down, every request fails, and a line for each request would fill the log. The
/// subject is the node that the event concerns. If an event concerns several nodes, the subject is the [first
/// node that failed](Self::failed_node). If an event concerns no node in particular, the subject is `""`. The
/// subject of a programming mistake is its message.
///
/// No event is lost: suppressed events are counted, and the count is returned with the next line of the same
/// kind and subject. The memory is bounded: kinds are constants of the program, and at most 64 counts are
/// kept. While all 64 are in use, further subjects of a kind share the subject `""`.
pub struct LogLimit {
    clock: Arc<dyn Clock>,
    counts: Mutex<Vec<Count>>,
}

/// The suppressed events of one kind and subject since their last line.
struct Count {
    kind: &'static str,
    subject: Box<str>,
    last_line: Moment,
    suppressed: u64,
}

impl LogLimit {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, counts: Mutex::default() }
    }

    /// Returns the number of similar events that were suppressed since the last line, if this event may be
    /// logged. Otherwise counts the event and returns `None`.
    pub fn admit(&self, kind: &'static str, mut subject: &str) -> Option<u64> {
        let now = self.clock.now();
        let mut counts = self.counts.lock();
        let position = |counts: &[Count], subject: &str| {
            counts.iter().position(|count| count.kind == kind && *count.subject == *subject)
        };
        let mut index = position(&counts, subject);
        if index.is_none() && counts.len() >= MAX_COUNTS {
            counts.retain(|count| count.suppressed > 0 || now.since(count.last_line) < PERIOD);
            if counts.len() >= MAX_COUNTS {
                subject = "";
                index = position(&counts, subject);
            }
        }
        let Some(index) = index else {
            counts.push(Count { kind, subject: subject.into(), last_line: now, suppressed: 0 });
            return Some(0);
        };
        let count = &mut counts[index];
        if now.since(count.last_line) < PERIOD {
            count.suppressed += 1;
            return None;
        }
        count.last_line = now;
        Some(std::mem::take(&mut count.suppressed))
    }

    /// Returns the first node that failed or has a foreign key; `""` if there is none.
    pub fn failed_node(votes: &Votes) -> &str {
        let mut votes = votes.iter();
        let failed =
            votes.find(|(_, vote)| matches!(vote, Some(Vote::Failed(_) | Vote::Foreign { .. })));
        failed.map_or("", |(node, _)| node)
    }
}

/// Logs an event at the given level if the limit allows it, and at debug otherwise. No public API.
///
/// The field `suppressed` is the number of similar events since the last one at the given level.
#[doc(hidden)]
#[macro_export]
macro_rules! log_limited {
    ($limit:expr, $kind:expr, $subject:expr, $level:ident, $($message:tt)+) => {
        if let Some(suppressed) = $limit.admit($kind, $subject) {
            tracing::$level!(suppressed, $($message)+);
        } else {
            tracing::debug!($($message)+);
        }
    };
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl fmt::Debug for LogLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogLimit").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::fake::FakeClock;
    use crate::error::NodeError;

    fn limit() -> (LogLimit, FakeClock) {
        let clock = FakeClock::default();
        (LogLimit::new(Arc::new(clock.clone())), clock)
    }

    #[test]
    fn one_line_per_second_stands_for_all_like_events() {
        let (limit, clock) = limit();
        assert_eq!(limit.admit("refused", "a"), Some(0));
        for _ in 0..15_000 {
            assert_eq!(limit.admit("refused", "a"), None);
        }
        clock.advance(Duration::from_nanos(999_999_999));
        assert_eq!(limit.admit("refused", "a"), None);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(limit.admit("refused", "a"), Some(15_001));
        assert_eq!(limit.admit("refused", "a"), None);
        // A count is kept until the next line, however late that is.
        clock.advance(1000 * PERIOD);
        assert_eq!(limit.admit("refused", "a"), Some(1));
        clock.advance(PERIOD);
        assert_eq!(limit.admit("refused", "a"), Some(0));
    }

    #[test]
    fn kinds_and_nodes_are_counted_separately() {
        let (limit, clock) = limit();
        for (kind, node) in [("refused", "a"), ("refused", "b"), ("refused", ""), ("lost", "a")] {
            assert_eq!(limit.admit(kind, node), Some(0), "{kind} {node}");
        }
        assert_eq!(limit.admit("refused", "b"), None);
        clock.advance(PERIOD);
        for (kind, node, suppressed) in [("refused", "a", 0), ("refused", "b", 1), ("lost", "a", 0)]
        {
            assert_eq!(limit.admit(kind, node), Some(suppressed), "{kind} {node}");
        }
    }

    #[test]
    fn the_memory_is_bounded_and_no_count_is_lost() {
        let (limit, clock) = limit();
        let (mut events, mut logged) = (0, 0);
        let mut pass = |kind, node: &str| {
            events += 1;
            let line = limit.admit(kind, node);
            logged += line.map_or(0, |suppressed| suppressed + 1);
            line
        };
        for node in 0..10_000 {
            pass("refused", &node.to_string());
            pass("lost", &node.to_string());
        }
        assert!(limit.counts.lock().len() <= MAX_COUNTS + 2, "{}", limit.counts.lock().len());
        // All nodes beyond the limit share one line.
        assert_eq!(pass("refused", "20000"), None);
        clock.advance(PERIOD);
        assert!(pass("refused", "20000").is_some());
        // Entries that are no longer in use are reused for other nodes.
        clock.advance(PERIOD);
        for node in 30_000..30_010 {
            assert_eq!(pass("refused", &node.to_string()), Some(0));
        }
        clock.advance(PERIOD);
        pass("refused", "");
        pass("lost", "");
        assert_eq!(logged, events);
        assert!(limit.counts.lock().len() <= MAX_COUNTS + 2);
    }

    #[test]
    fn an_event_of_several_nodes_is_counted_for_the_first_that_failed() {
        let failed = Vote::Failed(NodeError::NoReply(PERIOD));
        let votes = |votes: [Option<Vote>; 3]| {
            let nodes = ["a", "b", "c"].map(Arc::from).into_iter();
            nodes.zip(votes).collect::<Votes>()
        };
        let granted = || Some(Vote::Agreed);
        let some = votes([granted(), Some(failed.clone()), Some(failed)]);
        assert_eq!(LogLimit::failed_node(&some), "b");
        assert_eq!(LogLimit::failed_node(&votes([granted(), None, granted()])), "");
        assert_eq!(LogLimit::failed_node(&Votes::default()), "");
    }
}
