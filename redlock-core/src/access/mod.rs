//! The public types by which a manager gets access to its servers: the options of TLS, and credentials. The kit of the
//! stores has the rest.
#![cfg_attr(not(feature = "tls"), expect(unreachable_pub, reason = "public with the feature"))]

#[cfg(feature = "tls")]
mod client_config;
mod credentials;
mod tls;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

#[cfg(feature = "tls")]
pub(crate) use client_config::{check_tls, read_config};
pub use credentials::Credentials;
pub(crate) use credentials::{ProviderError, ProviderFn};
pub(crate) use tls::Pem;
pub use tls::TlsOptions;

/// Runs `read`, which reads these files, in a thread for blocking work, because the files may be on a slow disk.
///
/// If the files are on a disk that hangs, their read occupies its thread even after the caller has stopped waiting.
/// Later callers wait for that read instead of occupying more threads.
pub(crate) async fn read_files<T: Send + 'static>(
    files: Vec<PathBuf>,
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    /// A lock for each set of files, which is held while they are read. A set is never removed: the configurations of
    /// the managers limit their number.
    static READS: Mutex<BTreeMap<Vec<PathBuf>, Arc<tokio::sync::Mutex<()>>>> =
        Mutex::new(BTreeMap::new());

    let lock = Arc::clone(READS.lock().entry(files).or_default());
    let reading = lock.lock_owned().await;
    let result = tokio::task::spawn_blocking(move || {
        let _reading = reading;
        read()
    });
    result.await.map_err(io::Error::other)
}
