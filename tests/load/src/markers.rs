//! Finds two handlers that work on one key at once, in any number of processes, without the library.
//!
//! A handler that begins makes a file that must not exist yet (`O_EXCL`), and removes it when it ends
//! or is dropped. Where the file exists, another handler is at work on the key: an [`Overlap`].
//!
//! A lock ends with its lease, and so does its exclusion. [`Overlap::first_was_inside`] says how long
//! the first handler had been at work, so that a handler that was held up past its lease is told from
//! a lock that two handlers held.

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
    /// What both worked on.
    pub key: String,
    /// How long the first handler had been at work when the second began.
    pub first_was_inside: Duration,
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

    /// Begins to work on `key`, a word that can be the name of a file.
    ///
    /// # Errors
    ///
    /// The file cannot be made, or an overlap cannot be recorded.
    pub fn enter(&self, key: &str) -> io::Result<Inside> {
        let path = self.inside.join(key);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                let inside = Inside(Some(path));
                file.write_all(monotonic_nanos().to_string().as_bytes())?;
                Ok(inside)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.record_overlap(key, &path)?;
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
            let (nanos, key) = line.split_once(' ')?;
            let first_was_inside = Duration::from_nanos(nanos.parse().ok()?);
            Some(Overlap { key: key.to_owned(), first_was_inside })
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

    fn record_overlap(&self, key: &str, marker: &Path) -> io::Result<()> {
        let now = monotonic_nanos();
        // The first handler may end at this moment, or may have begun at this moment and not have
        // written yet: then nothing excuses the overlap.
        let since = std::fs::read_to_string(marker).ok().and_then(|text| text.parse().ok());
        let inside = now.saturating_sub(since.unwrap_or(now));
        let mut file: File = OpenOptions::new().create(true).append(true).open(&self.overlaps)?;
        // One write to a file opened for appending is not torn apart by another process's.
        file.write_all(format!("{inside} {key}\n").as_bytes())
    }
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

    #[test]
    fn handlers_of_one_key_that_follow_each_other_are_no_overlap() {
        let (_dir, markers) = markers();
        drop(markers.enter("order-1").unwrap());
        let again = markers.enter("order-1").unwrap();
        let other = markers.enter("order-2").unwrap();
        assert_eq!(markers.count_inside().unwrap(), 2);
        drop((again, other));
        assert_eq!(markers.overlaps().unwrap(), []);
        assert_eq!(markers.count_inside().unwrap(), 0);
    }

    #[test]
    fn two_handlers_of_one_key_at_once_are_an_overlap() {
        let (dir, markers) = markers();
        let first = markers.enter("order-1").unwrap();
        // Another process has its own value for the same directory.
        let second = Markers::in_directory(dir.path()).unwrap().enter("order-1").unwrap();
        let found = markers.overlaps().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].key, "order-1");
        assert!(found[0].first_was_inside < Duration::from_secs(60), "{found:?}");
        drop(second);
        assert_eq!(markers.count_inside().unwrap(), 1, "the first is still at work");
        drop(first);
        assert_eq!(markers.count_inside().unwrap(), 0);
    }

    #[test]
    fn an_overlap_says_how_long_the_first_handler_was_at_work() {
        let (dir, markers) = markers();
        let _first = markers.enter("order-1").unwrap();
        let long_ago = monotonic_nanos().saturating_sub(5_000_000_000);
        std::fs::write(dir.path().join("inside/order-1"), long_ago.to_string()).unwrap();
        drop(markers.enter("order-1").unwrap());
        let found = markers.overlaps().unwrap();
        assert!(found[0].first_was_inside >= Duration::from_secs(5), "{found:?}");
    }
}
