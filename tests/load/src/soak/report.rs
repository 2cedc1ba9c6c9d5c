//! The result of a long run.

use std::fmt;
use std::time::{Duration, Instant};

use super::kills::Killed;
use crate::answers::{Answer, Answers};
use crate::markers::Overlap;

const MIB: u64 = 1024 * 1024;
/// A 503 is excused until this long after a quorum of servers votes again.
const MARGIN: Duration = Duration::from_millis(500);
/// The least number of samples in each third of the run for a comparison of memory, at one sample per second.
/// In shorter runs the memory has not reached its level, because each burst leaves some fragmentation behind.
const SAMPLES: usize = 100;
/// The least number of served requests. A run that serves fewer shows nothing.
const SERVED: usize = 10;

/// The result of a long run.
#[derive(Debug)]
pub struct Report {
    pub(super) seed: u64,
    pub(super) guarded: bool,
    pub(super) lasted: Duration,
    pub(super) begun: Instant,
    pub(super) answers: Answers,
    pub(super) without_quorum: Vec<(Instant, Instant)>,
    pub(super) kills: Killed,
    pub(super) vanished: u32,
    pub(super) bursts: u32,
    pub(super) overlaps: Vec<Overlap>,
    pub(super) held_up: Vec<Overlap>,
    pub(super) memory: Vec<Vec<u64>>,
    pub(super) handlers_left: usize,
    pub(super) keys_left: Vec<String>,
    pub(super) logs: Vec<String>,
}

impl Report {
    /// All answers of the clients that waited for one.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// How many servers were killed.
    pub fn kills(&self) -> usize {
        self.kills.count
    }

    /// Two handlers that worked on one key at once, though both could rely on their locks.
    pub fn overlaps(&self) -> &[Overlap] {
        &self.overlaps
    }

    /// Returns the numbers of 503 answers while fewer than three servers voted, and at other times.
    pub fn unavailable(&self) -> (usize, usize) {
        let unavailable = self.answers.iter().filter(|answer| answer.status == Ok(503));
        let (excused, others): (Vec<_>, Vec<_>) =
            unavailable.partition(|answer| self.is_excused(answer));
        (excused.len(), others.len())
    }

    /// Describes each violation; empty after a run without defects.
    pub fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        let mut check = |holds: bool, words: String| {
            if !holds {
                violations.push(words);
            }
        };
        let overlaps = &self.overlaps;
        check(overlaps.is_empty(), format!("two handlers at once: {:?}", first(overlaps)));
        let (_, unavailable) = self.unavailable();
        check(unavailable == 0, format!("{unavailable} times 503 though three servers voted"));
        let errors = self.answers.connection_errors();
        check(errors == 0, format!("{errors} connection errors"));
        let others = self.answers.outside(&[200, 409, 503]);
        check(others.is_empty(), format!("other statuses: {others:?}"));
        check(self.handlers_left == 0, format!("{} handlers never ended", self.handlers_left));
        let keys = &self.keys_left;
        check(keys.is_empty(), format!("{} keys left: {:?}", keys.len(), first(keys)));
        let served = self.answers.count(200);
        check(served >= SERVED, format!("only {served} requests were served"));
        for samples in &self.memory {
            if let Some((before, after)) = levels(samples) {
                let grew = format!("memory grew from {before} to {after} bytes");
                check(after <= before + before / 10 + 2 * MIB, grew);
            }
        }
        violations
    }

    fn is_excused(&self, answer: &Answer) -> bool {
        let within = |(from, until): &(Instant, Instant)| {
            *from <= answer.ended && answer.ended <= *until + MARGIN
        };
        self.without_quorum.iter().any(within)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = if self.guarded { "with" } else { "WITHOUT" };
        writeln!(f, "seed {}, {:.0?}, {guard} the restart guard", self.seed, self.lasted)?;
        writeln!(f, "{}", self.answers)?;
        let Killed { count, longest_restart } = &self.kills;
        writeln!(f, "kills              {count}, up again within {longest_restart:.0?}")?;
        let stretches = self.without_quorum.iter().filter(|(_, until)| *until > self.begun);
        let time: Duration = stretches.clone().map(|(from, until)| *until - *from).sum();
        let count = stretches.count();
        writeln!(f, "without a quorum   {count} times, {time:.1?} together")?;
        let (excused, others) = self.unavailable();
        writeln!(f, "503 meanwhile      {excused}")?;
        writeln!(f, "503 otherwise      {others}")?;
        writeln!(f, "vanished clients   {}", self.vanished)?;
        writeln!(f, "bursts             {}", self.bursts)?;
        writeln!(f, "overlaps           {}", self.overlaps.len())?;
        writeln!(f, "beyond the lease   {}", self.held_up.len())?;
        for samples in &self.memory {
            match levels(samples) {
                Some((before, after)) => {
                    let (before, after) = (before / 1024, after / 1024);
                    writeln!(
                        f,
                        "memory             {before} KiB in the second third, {after} in the last"
                    )?;
                }
                None => writeln!(f, "memory             not judged: {} samples", samples.len())?,
            }
        }
        writeln!(f, "handlers left      {}", self.handlers_left)?;
        writeln!(f, "keys left          {}", self.keys_left.len())?;
        let violations = self.violations();
        if violations.is_empty() {
            return write!(f, "no violation");
        }
        for line in &self.logs {
            writeln!(f, "log                {line}")?;
        }
        write!(f, "VIOLATIONS         {}", violations.join("\n                   "))
    }
}

/// The first few.
fn first<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(3)]
}

/// The medians of the second and of the last third.
fn levels(samples: &[u64]) -> Option<(u64, u64)> {
    let third = samples.len() / 3;
    let median = |samples: &[u64]| {
        let mut samples = samples.to_vec();
        samples.sort_unstable();
        samples[samples.len() / 2]
    };
    (third >= SAMPLES).then(|| (median(&samples[third..2 * third]), median(&samples[2 * third..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report of a run in which nothing happened that must not.
    fn good() -> Report {
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let answer = |second| Answer { sent: begun, ended: at(second), status: Ok(200) };
        Report {
            seed: 1,
            guarded: true,
            lasted: Duration::from_secs(60),
            begun,
            answers: (0..20).map(answer).collect(),
            without_quorum: vec![(at(20), at(30))],
            kills: Killed::default(),
            vanished: 0,
            bursts: 0,
            overlaps: Vec::new(),
            held_up: vec![overlap()],
            memory: vec![vec![100 * MIB; 3 * SAMPLES]],
            handlers_left: 0,
            keys_left: Vec::new(),
            logs: Vec::new(),
        }
    }

    fn overlap() -> Overlap {
        let second = Duration::from_secs(1);
        Overlap {
            key: "wait-1".to_owned(),
            first_was_inside: second,
            first_could_rely_for: second,
            second_could_rely_for: second,
        }
    }

    fn answered(report: &mut Report, second: u64, status: Result<u16, String>) {
        let ended = report.begun + Duration::from_secs(second);
        report.answers.extend([Answer { sent: report.begun, ended, status }]);
    }

    #[test]
    fn a_run_without_defects_has_no_violations() {
        let mut report = good();
        answered(&mut report, 25, Ok(503));
        answered(&mut report, 45, Ok(409));
        assert_eq!(report.unavailable(), (1, 0));
        assert_eq!(report.violations(), [""; 0]);
    }

    type Make = fn(&mut Report);

    #[test]
    fn each_defect_is_a_violation() {
        let broken = || Err("broken".to_owned());
        let defects: [(&str, Make); 6] = [
            ("two handlers at once", |report| report.overlaps.push(overlap())),
            ("1 times 503 though three servers voted", |report| answered(report, 35, Ok(503))),
            ("other statuses: {500: 1}", |report| answered(report, 25, Ok(500))),
            ("2 handlers never ended", |report| report.handlers_left = 2),
            ("1 keys left", |report| report.keys_left.push("7000/wait-1".to_owned())),
            ("memory grew", |report| report.memory[0][2 * SAMPLES..].fill(120 * MIB)),
        ];
        for (words, make) in defects {
            let mut report = good();
            make(&mut report);
            let violations = report.violations();
            assert_eq!(violations.len(), 1, "{violations:?}");
            assert!(violations[0].starts_with(words), "{violations:?}");
            assert!(report.to_string().contains(words), "{report}");
        }
        let mut report = good();
        answered(&mut report, 25, broken());
        assert_eq!(report.violations(), ["1 connection errors"]);
        let report = Report { answers: Answers::default(), ..good() };
        assert_eq!(report.violations(), ["only 0 requests were served"]);
    }

    #[test]
    fn memory_is_compared_by_medians() {
        let mut samples = vec![7; 3 * SAMPLES];
        samples[..SAMPLES].fill(1000);
        samples[3 * SAMPLES - 10..].fill(1000);
        assert_eq!(levels(&samples), Some((7, 7)));
        assert_eq!(levels(&samples[1..]), None, "too few");
    }
}
