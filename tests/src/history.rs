//! Who believed to hold what, and when: the check of mutual exclusion that does not ask the lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

/// Reads a clock that never steps and is the same for all processes of this machine.
pub fn monotonic_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither field is ever negative on this clock.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// A stretch of time in which somebody believed to hold a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// When it began, by [`monotonic_nanos`].
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// What was held.
    pub key: String,
    /// Who held it: a process id and a number.
    pub holder: String,
}

/// Finds pairs of spans of one key that overlap. Ends that touch do not.
///
/// At least one pair is found if there is one; where several overlap with the same long span, each
/// is reported with the one that reaches furthest.
pub fn overlaps(mut spans: Vec<Span>) -> Vec<(Span, Span)> {
    spans.sort_by(|a, b| (&a.key, a.start).cmp(&(&b.key, b.start)));
    let mut found = Vec::new();
    let mut furthest: Option<Span> = None;
    for span in spans {
        match &furthest {
            Some(before) if before.key == span.key => {
                if span.start < before.end {
                    found.push((before.clone(), span.clone()));
                }
                if span.end > before.end {
                    furthest = Some(span);
                }
            }
            _ => furthest = Some(span),
        }
    }
    found
}

/// A file of spans that any number of processes append to.
#[derive(Debug, Clone)]
pub struct History(PathBuf);

impl History {
    /// A history in the file at `path`, which need not be there yet.
    pub fn at(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Begins a span; it ends when the section is dropped.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn enter(&self, key: &str, holder: &str) -> io::Result<Section> {
        let file = OpenOptions::new().create(true).append(true).open(&self.0)?;
        let label = format!("{} {}\t{key}", std::process::id(), holder.replace('\t', " "));
        Ok(Section { file, label, start: monotonic_nanos() })
    }

    /// All spans that have ended.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or holds something else.
    pub fn spans(&self) -> io::Result<Vec<Span>> {
        let text = match std::fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        text.lines()
            .map(|line| parse(line).ok_or_else(|| io::Error::other(format!("not a span: {line}"))))
            .collect()
    }
}

fn parse(line: &str) -> Option<Span> {
    let mut fields = line.splitn(4, '\t');
    let start = fields.next()?.parse().ok()?;
    let end = fields.next()?.parse().ok()?;
    let holder = fields.next()?.to_owned();
    let key = fields.next()?.to_owned();
    Some(Span { start, end, key, holder })
}

/// The time between entering and leaving; leaving is the drop, so that a panic or a dropped future
/// is recorded too.
#[derive(Debug)]
pub struct Section {
    file: File,
    label: String,
    start: u64,
}

impl Drop for Section {
    fn drop(&mut self) {
        let line = format!("{}\t{}\t{}\n", self.start, monotonic_nanos(), self.label);
        // One write to a file opened for appending is not torn apart by another process's.
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            eprintln!("the history is not complete: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(key: &str, start: u64, end: u64) -> Span {
        Span { start, end, key: key.to_owned(), holder: String::new() }
    }

    #[test]
    fn spans_one_after_another_do_not_overlap() {
        let spans = vec![span("a", 20, 30), span("a", 10, 20), span("a", 30, 31)];
        assert_eq!(overlaps(spans), []);
    }

    #[test]
    fn a_known_overlap_is_found() {
        let spans = vec![span("a", 10, 20), span("a", 30, 40), span("a", 19, 25)];
        assert_eq!(overlaps(spans), [(span("a", 10, 20), span("a", 19, 25))]);
    }

    #[test]
    fn a_long_span_overlaps_with_all_that_begin_inside_it() {
        let spans = vec![span("a", 10, 100), span("a", 20, 21), span("a", 50, 51)];
        assert_eq!(overlaps(spans).len(), 2);
    }

    #[test]
    fn different_keys_do_not_exclude_each_other() {
        assert_eq!(overlaps(vec![span("a", 10, 20), span("b", 10, 20)]), []);
    }

    #[test]
    fn sections_of_several_threads_are_written_and_their_overlap_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::at(dir.path().join("history"));
        let first = history.enter("key with\ttab", "first").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(history.enter("key with\ttab", "second").unwrap()));
        });
        drop(first);
        let spans = history.spans().unwrap();
        assert_eq!(spans.len(), 2);
        assert_eq!(spans[0].key, "key with\ttab");
        assert_eq!(overlaps(spans).len(), 1);
    }

    #[test]
    fn a_section_that_panics_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::at(dir.path().join("history"));
        let held = history.clone();
        let thread = std::thread::spawn(move || {
            let _section = held.enter("a", "").unwrap();
            panic!("on purpose");
        });
        thread.join().unwrap_err();
        assert_eq!(history.spans().unwrap().len(), 1);
    }
}
