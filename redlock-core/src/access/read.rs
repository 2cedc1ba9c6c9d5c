//! Reads the files of passwords and certificates.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;

/// A lock for each set of files, which is held while they are read. A set is never removed: the configurations of the
/// managers limit their number.
type Reads = HashMap<Vec<PathBuf>, Arc<AsyncMutex<()>>>;

static READS: LazyLock<Mutex<Reads>> = LazyLock::new(Mutex::default);

/// Runs `read`, which reads these files, in a thread for blocking work, because the files may be on a slow disk.
///
/// If the files are on a disk that hangs, their read occupies its thread even after the caller has stopped waiting.
/// Later callers wait for that read instead of occupying more threads.
pub(crate) async fn read_files<T: Send + 'static>(
    files: Vec<PathBuf>,
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let reading = if files.is_empty() {
        None
    } else {
        let reading = Arc::clone(READS.lock().entry(files).or_default());
        Some(reading.lock_owned().await)
    };
    let result = spawn_blocking(move || {
        let result = read();
        drop(reading);
        result
    });
    result.await.map_err(io::Error::other)
}
