//! Writing and reading a history.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::clock::monotonic_nanos;
use super::event::{Event, Sharing, What};

/// A later end of a belief is recorded only if it is later by more than this, in nanoseconds.
const LEAST_CHANGE: u64 = 100_000;

/// A file of events that any number of processes append to.
#[derive(Debug, Clone)]
pub struct History {
    path: PathBuf,
    file: Arc<OnceLock<File>>,
}

impl History {
    /// Uses the file at `path`. The first event creates it.
    pub fn at(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), file: Arc::default() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records the beginning of a hold that lasts until the returned belief is dropped.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn enter(&self, key: &str) -> io::Result<Belief> {
        self.open()?;
        Ok(Belief::begin(self, next_number(), key, u64::MAX, None, Sharing::Exclusive))
    }

    /// Records that the caller is about to request a lock, and the longest time for the attempt.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn ask(&self, key: &str, within: Duration) -> io::Result<Attempt> {
        self.open()?;
        let number = next_number();
        self.write(number, What::Asked { within, key: key.to_owned() });
        Ok(Attempt { history: self.clone(), number, key: key.to_owned(), ended: false })
    }

    /// Records an event that belongs to no attempt.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn note(&self, what: What) -> io::Result<()> {
        self.open()?;
        self.write(0, what);
        Ok(())
    }

    /// Returns all events so far, in the order in which they were written.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or contains a line that is not an event.
    pub fn events(&self) -> io::Result<Vec<Event>> {
        let text = match std::fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    fn open(&self) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        Ok(self.file.get_or_init(|| file))
    }

    fn write(&self, number: u64, what: What) {
        let event = Event { at: monotonic_nanos(), process: std::process::id(), number, what };
        // With O_APPEND, a single write is not interleaved with the writes of other processes.
        let written = self.open().and_then(|mut file| {
            let line = serde_json::to_string(&event)? + "\n";
            file.write_all(line.as_bytes())
        });
        if let Err(error) = written {
            eprintln!("the history is incomplete: {error}");
        }
    }
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A running attempt to acquire a lock. Dropping the value records that the caller abandoned the attempt.
#[derive(Debug)]
pub struct Attempt {
    history: History,
    number: u64,
    key: String,
    ended: bool,
}

impl Attempt {
    /// Records that the lock was granted. `remaining` returns the remaining validity.
    pub fn granted(self, fencing: Option<i64>, remaining: impl FnOnce() -> Duration) -> Belief {
        self.granted_to(Sharing::Exclusive, fencing, remaining)
    }

    /// Records that a lock was granted that the holder may share.
    pub fn granted_to(
        mut self,
        sharing: Sharing,
        fencing: Option<i64>,
        remaining: impl FnOnce() -> Duration,
    ) -> Belief {
        self.ended = true;
        let (_, until) = read_validity(remaining);
        Belief::begin(&self.history, self.number, &self.key, until, fencing, sharing)
    }

    /// Records that the acquisition failed.
    pub fn refused(mut self, reason: &str) {
        self.ended = true;
        self.history.write(self.number, What::Refused { reason: reason.to_owned() });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.ended {
            self.history.write(self.number, What::Abandoned);
        }
    }
}

/// A holder's belief that it holds a lock. It ends with the validity, or when the value is dropped: so a
/// panic or a dropped future is recorded too. Drop it before you release the lock.
#[derive(Debug)]
pub struct Belief {
    history: History,
    number: u64,
    until: u64,
}

impl Belief {
    fn begin(
        history: &History,
        number: u64,
        key: &str,
        believed_until: u64,
        fencing: Option<i64>,
        sharing: Sharing,
    ) -> Self {
        let key = key.to_owned();
        history.write(number, What::Granted { believed_until, fencing, sharing, key });
        Self { history: history.clone(), number, until: believed_until }
    }

    /// Records that the holder is about to turn its exclusive lock into a shared one, or has turned its shared lock into
    /// an exclusive one.
    pub fn change(&self, sharing: Sharing) {
        self.history.write(self.number, What::Changed { sharing });
    }

    /// Checks the remaining validity again, records a change, and returns the validity. Zero means that the
    /// lock is lost.
    pub fn look(&mut self, remaining: impl FnOnce() -> Duration) -> Duration {
        let (remaining, until) = read_validity(remaining);
        let moved = if remaining.is_zero() {
            until < self.until
        } else {
            until > self.until.saturating_add(LEAST_CHANGE)
        };
        if moved {
            self.until = until;
            self.history.write(self.number, What::Believed { until });
        }
        remaining
    }
}

impl Drop for Belief {
    fn drop(&mut self) {
        self.history.write(self.number, What::Released);
    }
}

/// Returns the remaining validity and the time at which it ends. Reads the clock first: if the process is
/// stopped between the two readings, the computed end is earlier than the true one, never later.
fn read_validity(remaining: impl FnOnce() -> Duration) -> (Duration, u64) {
    let now = monotonic_nanos();
    let remaining = remaining();
    let nanos = u64::try_from(remaining.as_nanos()).unwrap_or(u64::MAX);
    (remaining, now.saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::super::{holds, overlaps};
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn history() -> (tempfile::TempDir, History) {
        let dir = tempfile::tempdir().unwrap();
        let history = History::at(dir.path().join("history"));
        (dir, history)
    }

    #[test]
    fn overlapping_beliefs_of_two_threads_are_recorded() {
        let (_dir, history) = history();
        let first = history.enter("key with\ttab").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(history.enter("key with\ttab").unwrap()));
        });
        drop(first);
        let holds = holds(&history.events().unwrap());
        assert_eq!(holds.len(), 2);
        assert_eq!(holds[0].key, "key with\ttab");
        assert_eq!(overlaps(&holds).len(), 1);
    }

    #[test]
    fn a_panic_ends_the_recorded_hold() {
        let (_dir, history) = history();
        let held = history.clone();
        let thread = std::thread::spawn(move || {
            let _belief = held.enter("a").unwrap();
            panic!("on purpose");
        });
        thread.join().unwrap_err();
        let holds = holds(&history.events().unwrap());
        assert!(holds.len() == 1 && holds[0].end <= monotonic_nanos(), "{holds:?}");
    }

    #[test]
    fn a_renewal_and_a_loss_move_the_end_of_a_belief_but_a_late_release_does_not() {
        let (_dir, history) = history();
        let end = |history: &History| holds(&history.events().unwrap())[0].end;
        let begun = monotonic_nanos();
        let mut belief = history.ask("a", LONG).unwrap().granted(None, || LONG / 2);
        let first = end(&history);
        assert!(first >= begun + 30_000_000_000);
        belief.look(|| LONG);
        assert!(end(&history) >= first + 30_000_000_000, "renewed");
        belief.look(|| Duration::ZERO);
        let lost = end(&history);
        assert!(lost <= monotonic_nanos(), "a loss ends the belief early");
        belief.look(|| Duration::ZERO);
        drop(belief);
        assert_eq!(end(&history), lost, "a release after the loss does not move the end");
    }

    #[test]
    fn the_end_of_every_attempt_is_recorded() {
        let (_dir, history) = history();
        history.ask("a", LONG).unwrap().refused("held");
        drop(history.ask("a", LONG).unwrap());
        drop(history.ask("a", LONG).unwrap().granted(None, || Duration::MAX));
        let events = history.events().unwrap();
        let what: Vec<_> = events.into_iter().map(|event| event.what).collect();
        let asked = What::Asked { within: LONG, key: "a".to_owned() };
        let (key, sharing) = ("a".to_owned(), Sharing::Exclusive);
        let granted = What::Granted { believed_until: u64::MAX, fencing: None, sharing, key };
        let refused = What::Refused { reason: "held".to_owned() };
        let expected = [
            asked.clone(),
            refused,
            asked.clone(),
            What::Abandoned,
            asked,
            granted,
            What::Released,
        ];
        assert_eq!(what, expected);
    }
}
