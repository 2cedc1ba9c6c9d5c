//! The client processes of a storm.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::LONGEST_LEASE;
use crate::eventually::eventually;
use crate::history::History;
use crate::process::Process;
use crate::scratch::scratch;

/// The longest time for an orderly shutdown, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// The behaviour of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Behaves correctly: relies on a lock only while its guard is valid.
    Honest,
    /// Relies on a lock until it releases it, without regard to the validity.
    IgnoresValidity,
    /// Releases a lock with `DEL`, which may remove the lock of another holder.
    DeletesWithoutComparing,
}

impl Client {
    const ALL: [Self; 3] = [Self::Honest, Self::IgnoresValidity, Self::DeletesWithoutComparing];

    /// Returns for how long the client relies on a lock that is valid for `remaining`.
    pub fn believes(self, remaining: Duration) -> Duration {
        match self {
            Self::Honest | Self::DeletesWithoutComparing => remaining,
            Self::IgnoresValidity => Duration::MAX,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|client| client.to_string() == text);
        known.ok_or_else(|| format!("unknown client: {text}"))
    }
}

/// The program and the environment of the client processes.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) program: PathBuf,
    pub(super) client: Client,
    pub(super) restart_guard: bool,
    /// How long a former master may grant locks; `None` for the default.
    pub(super) failover_margin: Option<Duration>,
    /// Whether clients acquire several keys at once. A Redis Cluster has the keys in different slots.
    pub(super) has_sets: bool,
    /// The time within which a caller that waits gets its lock, if locks are granted at all.
    pub(super) patience: Duration,
    /// The direct URLs of the servers, for commands that no network fault may affect.
    pub(super) server_urls: Vec<String>,
    pub(super) history: History,
}

impl Command {
    pub(super) fn start(&self, seed: u64, urls: &[String]) -> Contender {
        let dir = scratch();
        let environment = [
            ("REDIS_URLS", urls.join(",")),
            ("SERVER_URLS", self.server_urls.join(",")),
            ("HISTORY", self.history.path().display().to_string()),
            ("SEED", seed.to_string()),
            ("LEASE_MS", LONGEST_LEASE.as_millis().to_string()),
            ("PATIENCE_MS", self.patience.as_millis().to_string()),
            ("CLIENT", self.client.to_string()),
            ("RESTART_GUARD", self.restart_guard.to_string()),
            (
                "FAILOVER_MARGIN_MS",
                self.failover_margin
                    .map(|margin| margin.as_millis().to_string())
                    .unwrap_or_default(),
            ),
            ("HAS_SETS", self.has_sets.to_string()),
        ];
        let program: &Path = &self.program;
        let log = dir.path().join("log");
        let process = Process::start(program.as_os_str(), [""; 0], &environment, &log)
            .expect("the client's process");
        Contender { process, dir }
    }
}

/// A client process.
#[derive(Debug)]
pub(super) struct Contender {
    process: Process,
    dir: TempDir,
}

impl Contender {
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
