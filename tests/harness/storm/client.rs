//! The client processes of a storm.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::eventually::eventually;
use crate::process::Process;
use crate::scratch::scratch;

/// The longest time for an orderly shutdown, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// The behaviour of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Client {
    /// Behaves correctly: relies on a lock only while its guard is valid.
    Honest,
    /// Relies on a lock until it releases it, without regard to the validity.
    IgnoresValidity,
    /// Releases a lock with `DEL`, which may remove the lock of another holder.
    DeletesWithoutComparing,
}

impl Client {
    /// Returns for how long the client relies on a lock that is valid for `remaining`.
    pub fn believes(self, remaining: Duration) -> Duration {
        match self {
            Self::Honest | Self::DeletesWithoutComparing => remaining,
            Self::IgnoresValidity => Duration::MAX,
        }
    }
}

/// The settings of a client process, as JSON in the environment variable `SETTINGS`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientSettings {
    /// The nodes, through the network that the storm disturbs.
    pub urls: Vec<String>,
    /// The same servers, over connections that the storm does not disturb.
    pub server_urls: Vec<String>,
    /// The file of the history.
    pub history: PathBuf,
    /// The seed of the random choices of the tasks.
    pub seed: u64,
    /// The behaviour of the client.
    pub client: Client,
    /// Whether the contended locks have the restart guard.
    pub restart_guard: bool,
    /// How long a former master may grant locks; `None` for the default.
    pub failover_margin: Option<Duration>,
    /// Whether tasks acquire several keys at once. A Redis Cluster has the keys in different slots.
    pub has_sets: bool,
    /// Whether the nodes have shared locks, fair queues and the dialect of Redisson.
    pub has_modes: bool,
    /// The time within which a caller that waits gets its lock, if locks are granted at all.
    pub patience: Duration,
}

/// A client process.
#[derive(Debug)]
pub(super) struct Contender {
    process: Process,
    dir: TempDir,
}

impl Contender {
    pub(super) fn start(program: &std::path::Path, settings: &ClientSettings) -> Self {
        let dir = scratch();
        let settings = serde_json::to_string(settings).expect("settings");
        let (program, log) = (program.as_os_str(), dir.path().join("log"));
        let process = Process::start(program, [""; 0], &[("SETTINGS", settings)], &log);
        Self { process: process.expect("the client's process"), dir }
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id().unsigned_abs()
    }

    pub(super) fn stop(&self) {
        self.process.stop(PATIENCE).expect("SIGSTOP");
    }

    pub(super) fn resume(&self) {
        self.process.signal(Signal::CONT).expect("SIGCONT");
    }

    pub(super) fn kill(self) {
        self.process.kill();
    }

    /// Sends SIGTERM and waits for the end. Returns the exit status and the log of a client that failed.
    pub(super) async fn finish(mut self) -> Result<(), String> {
        self.process.signal(Signal::TERM).expect("SIGTERM");
        let process = &mut self.process;
        let status = eventually("the client ends at SIGTERM", PATIENCE, async || {
            process.ended().expect("the client's exit status")
        })
        .await;
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        if status.success() { Ok(()) } else { Err(format!("a client failed: {status} {log}")) }
    }
}
