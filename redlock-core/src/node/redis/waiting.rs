//! How long a server has been silent.

use std::time::Duration;

use tokio::time::Instant;

/// A node that has let the oldest question wait for too long is suspected; if it is still silent
/// after this time, it is not asked any more. The time in between tells a node that is silent from
/// a process that was held up itself and has not looked at its sockets.
pub(super) const SUSPICION: Duration = Duration::from_millis(10);

/// Since when the server owes an answer.
#[derive(Debug, Default)]
pub(super) struct Waiting(parking_lot::Mutex<Owed>);

#[derive(Debug, Default)]
struct Owed {
    questions: usize,
    /// None also after an answer, until somebody looks.
    since: Option<Instant>,
    suspected: Option<Instant>,
}

impl Waiting {
    pub(super) fn begin(&self) -> Question<'_> {
        let mut owed = self.0.lock();
        owed.questions += 1;
        if owed.questions == 1 {
            owed.since = Some(Instant::now());
        }
        Question { waiting: self }
    }

    pub(super) fn unresponsive_for(&self, limit: Duration, now: Instant) -> Option<Duration> {
        let mut owed = self.0.lock();
        if owed.questions == 0 {
            return None;
        }
        let waited = now.saturating_duration_since(*owed.since.get_or_insert(now));
        if waited < limit {
            return None;
        }
        let suspected = *owed.suspected.get_or_insert(now);
        (now.saturating_duration_since(suspected) >= SUSPICION).then_some(waited)
    }
}

impl Owed {
    fn end_question(&mut self) {
        self.questions -= 1;
        if self.questions == 0 {
            self.since = None;
            self.suspected = None;
        }
    }
}

/// A question that the server owes the answer to.
pub(super) struct Question<'a> {
    waiting: &'a Waiting,
}

impl Question<'_> {
    /// The server has answered, so it is there; what else it owes counts from the next look, which
    /// saves reading the clock here.
    pub(super) fn answered(self) {
        let mut owed = self.waiting.0.lock();
        owed.suspected = None;
        owed.since = None;
        owed.end_question();
        drop(owed);
        std::mem::forget(self);
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.waiting.0.lock().end_question();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(1);

    fn wait(duration: Duration) {
        let start = Instant::now();
        while start.elapsed() < duration {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_server_that_stays_silent_is_unresponsive_until_it_answers() {
        let waiting = Waiting::default();
        assert_eq!(waiting.unresponsive_for(LIMIT, Instant::now()), None, "nothing was asked");
        let question = waiting.begin();
        assert_eq!(
            waiting.unresponsive_for(Duration::from_secs(60), Instant::now()),
            None,
            "not for long"
        );
        wait(LIMIT);
        assert_eq!(waiting.unresponsive_for(LIMIT, Instant::now()), None, "suspected");
        wait(SUSPICION);
        assert!(waiting.unresponsive_for(LIMIT, Instant::now()).is_some());
        question.answered();
        assert_eq!(waiting.unresponsive_for(LIMIT, Instant::now()), None);
    }

    /// A process that was held up sees old questions everywhere, and then the answers.
    #[test]
    fn an_answer_clears_the_suspicion() {
        let waiting = Waiting::default();
        let (one, _two) = (waiting.begin(), waiting.begin());
        wait(LIMIT);
        assert_eq!(waiting.unresponsive_for(LIMIT, Instant::now()), None, "suspected");
        one.answered();
        wait(SUSPICION);
        assert_eq!(waiting.unresponsive_for(LIMIT, Instant::now()), None, "suspected anew");
    }

    #[test]
    fn a_question_that_is_dropped_is_forgotten() {
        let waiting = Waiting::default();
        drop(waiting.begin());
        wait(LIMIT);
        let _ = waiting.unresponsive_for(LIMIT, Instant::now());
        wait(SUSPICION);
        assert_eq!(waiting.unresponsive_for(LIMIT, Instant::now()), None);
    }
}
