//! Processes whose holds the independent checker compares.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use redlock_core::{FencingToken, LockGuard, LockManager};
use redlock_tests::{Belief, Findings, History, Hold, Peer, holds};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The file of a history.
pub(crate) struct Recorded {
    history: History,
    _dir: TempDir,
}

impl Recorded {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { history: History::at(dir.path().join("history")), _dir: dir }
    }

    /// Starts a process that takes orders; see the program `session-client`.
    pub(crate) fn start(&self, url: &str) -> Peer {
        let program = Path::new(env!("CARGO_BIN_EXE_session-client"));
        let mut command = Command::new(program);
        command.env("LOCKS_URLS", url).env("HISTORY", self.history.path());
        let mut peer = Peer::start(&mut command);
        assert_eq!(peer.answer(), "ready");
        peer
    }

    /// Acquires the lock in this process.
    pub(crate) async fn acquire(
        &self,
        manager: &LockManager,
        key: &str,
        lease: Duration,
        wait: Duration,
    ) -> (LockGuard, Belief) {
        loop {
            let attempt = self.history.ask(key, wait).unwrap();
            let request = manager.lock(key).fenced(true).expire(lease).wait_time(wait);
            match request.acquire().await {
                Ok(guard) => {
                    let number = guard.fencing_token().map(FencingToken::number);
                    let belief = attempt.granted(number, || guard.remaining());
                    return (guard, belief);
                }
                Err(error) => {
                    attempt.refused(&error.diagnostics().to_string());
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// Returns the holds so far. The last line may be incomplete.
    pub(crate) fn holds(&self) -> Vec<Hold> {
        holds(&self.history.events().unwrap_or_default())
    }

    /// Checks that no two holds overlap, and that the numbers grow. Returns the holds.
    pub(crate) fn checked(&self) -> Vec<Hold> {
        let events = self.history.events().unwrap();
        let findings = Findings::of(&events, Duration::from_secs(3600));
        let all: BTreeSet<u32> = events.iter().map(|event| event.process).collect();
        let violations = findings.violations(&all);
        assert!(violations.is_empty(), "{violations:#?}");
        findings.holds
    }
}

/// Stops or continues a process.
pub(crate) fn signal(peer: &Peer, signal: Signal) {
    let id = Pid::from_raw(peer.id().cast_signed()).unwrap();
    kill_process(id, signal).unwrap();
}
