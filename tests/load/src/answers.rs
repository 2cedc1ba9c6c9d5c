//! The answers to many requests.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// The end of one request: its answer, or the loss of its connection.
#[derive(Debug, Clone)]
pub struct Answer {
    /// When the request was sent.
    pub sent: Instant,
    /// When its answer was read, or its connection broke.
    pub ended: Instant,
    /// The status of the answer; without one, why there was none.
    pub status: Result<u16, String>,
}

/// The ends of many requests.
#[derive(Debug, Clone, Default)]
pub struct Answers(Vec<Answer>);

impl Answers {
    /// The answers, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Answer> {
        self.0.iter()
    }

    /// How many requests were answered with `status`.
    pub fn count(&self, status: u16) -> usize {
        self.iter().filter(|answer| answer.status == Ok(status)).count()
    }

    /// How many requests got no answer.
    pub fn connection_errors(&self) -> usize {
        self.iter().filter(|answer| answer.status.is_err()).count()
    }

    /// How many requests there were.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there were no requests.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The statuses outside of `allowed`, and how often each occurred.
    pub fn outside(&self, allowed: &[u16]) -> BTreeMap<u16, usize> {
        let mut outside = self.by_status();
        outside.retain(|status, _| !allowed.contains(status));
        outside
    }

    /// The time within which this part of all requests, such as 0.99, was answered.
    pub fn latency(&self, part: f64) -> Duration {
        let answered = self.iter().filter(|answer| answer.status.is_ok());
        let mut times: Vec<_> = answered.map(|answer| answer.ended - answer.sent).collect();
        times.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a number of requests"
        )]
        let within = (times.len() as f64 * part).ceil() as usize;
        times.get(within.saturating_sub(1)).copied().unwrap_or_default()
    }

    fn by_status(&self) -> BTreeMap<u16, usize> {
        let mut by_status = BTreeMap::new();
        for status in self.iter().filter_map(|answer| answer.status.as_ref().ok()) {
            *by_status.entry(*status).or_default() += 1;
        }
        by_status
    }
}

impl FromIterator<Answer> for Answers {
    fn from_iter<I: IntoIterator<Item = Answer>>(answers: I) -> Self {
        Self(answers.into_iter().collect())
    }
}

impl Extend<Answer> for Answers {
    fn extend<I: IntoIterator<Item = Answer>>(&mut self, answers: I) {
        self.0.extend(answers);
    }
}

impl IntoIterator for Answers {
    type Item = Answer;
    type IntoIter = std::vec::IntoIter<Answer>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "requests           {}", self.len())?;
        for (status, count) in self.by_status() {
            writeln!(f, "status {status}         {count}")?;
        }
        writeln!(f, "connection errors  {}", self.connection_errors())?;
        let errors = self.iter().filter_map(|answer| answer.status.as_ref().err());
        for error in errors.take(3) {
            writeln!(f, "                   such as: {error}")?;
        }
        let [half, most, all] = [0.5, 0.99, 1.0].map(|part| self.latency(part));
        write!(f, "latency            p50 {half:.1?}, p99 {most:.1?}, max {all:.1?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(count: u32, status: impl Fn(u32) -> Result<u16, String>) -> Answers {
        let sent = Instant::now();
        let answer = |number: u32| {
            let ended = sent + Duration::from_millis(number.into());
            Answer { sent, ended, status: status(number) }
        };
        (1..=count).rev().map(answer).collect()
    }

    #[test]
    fn the_latency_is_the_time_within_which_a_part_was_answered() {
        let hundred = answers(100, |_| Ok(200));
        for (part, millis) in [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)] {
            assert_eq!(hundred.latency(part), Duration::from_millis(millis), "{part}");
        }
        assert_eq!(answers(0, |_| Ok(200)).latency(0.5), Duration::ZERO);
        let broken = answers(2, |_| Err("broken".to_owned()));
        assert_eq!(broken.latency(1.0), Duration::ZERO, "there was no answer");
    }

    #[test]
    fn statuses_and_connection_errors_are_counted_apart() {
        let answers = answers(10, |number| match number {
            1..=7 => Ok(200),
            8..=9 => Ok(503),
            _ => Err("broken".to_owned()),
        });
        assert_eq!((answers.count(200), answers.count(503), answers.count(409)), (7, 2, 0));
        assert_eq!((answers.len(), answers.connection_errors()), (10, 1));
        assert_eq!(answers.outside(&[200, 409]), BTreeMap::from([(503, 2)]));
        let words = answers.to_string();
        for line in ["status 200         7", "status 503         2", "connection errors  1"] {
            assert!(words.contains(line), "{words}");
        }
    }
}
