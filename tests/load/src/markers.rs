//! Finds two handlers that work on one key at once, in any number of processes, without the library.
//!
//! A handler that begins makes a file that must not exist yet (`O_EXCL`), and removes it when it ends
//! or is dropped. Where the file exists, another handler is at work on the key: an [`Overlap`].
//!
//! A lock ends with its lease, and a handler that was held up can be at work for longer. So each
//! handler says when it begins for how long it may rely on its lock. An overlap
//! [breaks the promise](Overlap::breaks_the_promise) of the locks if both handlers may rely on theirs.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use redlock_tests::monotonic_nanos;

/// A directory with a file for each key that a handler works on.
#[derive(Debug, Clone)]
pub struct Markers {
    inside: PathBuf,
    overlaps: PathBuf,
}

/// Two handlers that worked on one key at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The key of both handlers.
    pub key: String,
    /// How long the first handler had been at work when the second began.
    pub first_was_inside: Duration,
    /// For how much longer the first handler could rely on its lock; the longest time where that is
    /// not known, because the first handler had just begun or was just ending.
    pub first_could_rely_for: Duration,
    /// For how long the second handler could rely on its lock.
    pub second_could_rely_for: Duration,
}

impl Overlap {
    /// Whether both handlers could rely on their locks, so that the key was held twice.
    pub fn breaks_the_promise(&self) -> bool {
        !self.first_could_rely_for.is_zero() && !self.second_could_rely_for.is_zero()
    }
}

/// A handler at work. It has ended when this is dropped; drop it before the lock is released.
#[derive(Debug)]
pub struct Inside(Option<PathBuf>);

impl Markers {
    /// Uses the directory at `path`, which must exist.
    ///
    /// # Errors
    ///
    /// Nothing can be written there.
    pub fn in_directory(path: &Path) -> io::Result<Self> {
        let inside = path.join("inside");
        std::fs::create_dir_all(&inside)?;
        Ok(Self { inside, overlaps: path.join("overlaps") })
    }

    /// Begins to work on `key`, a word that can be the name of a file. `remaining` returns for how
    /// long the handler may rely on its lock.
    ///
    /// # Errors
    ///
    /// The file cannot be made, or an overlap cannot be recorded.
    pub fn enter(&self, key: &str, remaining: impl FnOnce() -> Duration) -> io::Result<Inside> {
        // The clock is read first: a process that is stopped in between claims less, and not more.
        let now = monotonic_nanos();
        let remaining = nanos(remaining());
        let path = self.inside.join(key);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                let inside = Inside(Some(path));
                let until = now.saturating_add(remaining);
                file.write_all(format!("{now} {until}").as_bytes())?;
                Ok(inside)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.record_overlap(key, &path, now.saturating_add(remaining))?;
                Ok(Inside(None))
            }
            Err(error) => Err(error),
        }
    }

    /// The overlaps that were found so far.
    ///
    /// # Errors
    ///
    /// The record cannot be read.
    pub fn overlaps(&self) -> io::Result<Vec<Overlap>> {
        let text = match std::fs::read_to_string(&self.overlaps) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        let overlap = |line: &str| {
            let mut words = line.split(' ');
            let key = words.next()?.to_owned();
            let mut time = || Some(Duration::from_nanos(words.next()?.parse().ok()?));
            Some(Overlap {
                key,
                first_was_inside: time()?,
                first_could_rely_for: time()?,
                second_could_rely_for: time()?,
            })
        };
        let unreadable = |line| io::Error::other(format!("no overlap: {line:?}"));
        text.lines().map(|line| overlap(line).ok_or_else(|| unreadable(line))).collect()
    }

    /// How many handlers are at work.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn count_inside(&self) -> io::Result<usize> {
        Ok(std::fs::read_dir(&self.inside)?.count())
    }

    /// Records that a handler that may rely on its lock until `second` found this marker.
    fn record_overlap(&self, key: &str, marker: &Path, second: u64) -> io::Result<()> {
        let now = monotonic_nanos();
        let first = std::fs::read_to_string(marker).ok().and_then(|text| {
            let (since, until) = text.split_once(' ')?;
            Some((since.parse().ok()?, until.parse().ok()?))
        });
        let (since, until) = first.unwrap_or((now, u64::MAX));
        let [inside, first, second] = [(now, since), (until, now), (second, now)]
            .map(|(end, start)| end.saturating_sub(start));
        let mut file: File = OpenOptions::new().create(true).append(true).open(&self.overlaps)?;
        // One write to a file opened for appending is not torn apart by another process's.
        file.write_all(format!("{key} {inside} {first} {second}\n").as_bytes())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(path) = self.0.take()
            && let Err(error) = std::fs::remove_file(&path)
        {
            eprintln!("{} cannot be removed: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markers() -> (tempfile::TempDir, Markers) {
        let dir = tempfile::tempdir().unwrap();
        let markers = Markers::in_directory(dir.path()).unwrap();
        (dir, markers)
    }

    const LEASE: Duration = Duration::from_secs(3600);

    #[test]
    fn handlers_of_one_key_that_follow_each_other_are_no_overlap() {
        let (_dir, markers) = markers();
        drop(markers.enter("order-1", || LEASE).unwrap());
        let again = markers.enter("order-1", || LEASE).unwrap();
        let other = markers.enter("order-2", || LEASE).unwrap();
        assert_eq!(markers.count_inside().unwrap(), 2);
        drop((again, other));
        assert_eq!(markers.overlaps().unwrap(), []);
        assert_eq!(markers.count_inside().unwrap(), 0);
    }

    #[test]
    fn two_handlers_of_one_key_at_once_are_an_overlap() {
        let (dir, markers) = markers();
        let first = markers.enter("order-1", || LEASE).unwrap();
        // Another process has its own value for the same directory.
        let others = Markers::in_directory(dir.path()).unwrap();
        let second = others.enter("order-1", || LEASE).unwrap();
        let found = markers.overlaps().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].key, "order-1");
        assert!(found[0].breaks_the_promise(), "{found:?}");
        let first_until = found[0].first_was_inside + found[0].first_could_rely_for;
        assert!(first_until >= LEASE && found[0].first_could_rely_for <= LEASE, "{found:?}");
        drop(second);
        assert_eq!(markers.count_inside().unwrap(), 1, "the first is still at work");
        drop(first);
        assert_eq!(markers.count_inside().unwrap(), 0);
    }

    #[test]
    fn an_overlap_with_a_handler_whose_lease_is_over_breaks_no_promise() {
        for (first, second) in [(Duration::ZERO, LEASE), (LEASE, Duration::ZERO)] {
            let (_dir, markers) = markers();
            let _first = markers.enter("order-1", || first).unwrap();
            drop(markers.enter("order-1", || second).unwrap());
            let found = markers.overlaps().unwrap();
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(!found[0].breaks_the_promise(), "{found:?}");
        }
    }

    #[test]
    fn an_overlap_with_a_handler_that_has_just_begun_breaks_the_promise() {
        let (dir, markers) = markers();
        let _first = markers.enter("order-1", || LEASE).unwrap();
        std::fs::write(dir.path().join("inside/order-1"), "").unwrap();
        drop(markers.enter("order-1", || LEASE).unwrap());
        let found = markers.overlaps().unwrap();
        assert!(found[0].breaks_the_promise(), "{found:?}");
    }
}
