//! The command `redlock`.

use std::ffi::OsStr;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::example::command;
use crate::process::Process;
use crate::scratch::scratch;
use redlock_logs::find_secret;

/// The longest time for a stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the settings of the command: these nodes, with timeouts for a busy machine. The `node_timeout` is shorter than each
/// lease.
fn settings(urls: &[String], node_timeout: &str) -> [(&'static str, String); 4] {
    [
        ("LOCKS_URLS", urls.join(",")),
        ("LOCKS_NODE_TIMEOUT", node_timeout.to_owned()),
        ("LOCKS_CONNECT_TIMEOUT", "20s".to_owned()),
        ("NO_COLOR", String::new()),
    ]
}

/// Returns the command `redlock` with these nodes. Each lease must be longer than 5 s.
pub fn redlock(urls: &[String]) -> Command {
    let mut program = Command::new(command());
    program.envs(settings(urls, "5s")).stdin(Stdio::null());
    program
}

/// A command `redlock` that runs. Dropping the value kills it.
#[derive(Debug)]
pub struct Running {
    process: Process,
    log: TempDir,
}

impl Running {
    /// Starts the command with these nodes and arguments. A lease may be as short as a second.
    ///
    /// # Panics
    ///
    /// If the process cannot be started.
    pub fn start(urls: &[String], arguments: &[impl AsRef<OsStr>]) -> Self {
        let log = scratch();
        let process = Process::start(
            command().as_os_str(),
            arguments,
            &settings(urls, "1s"),
            &log.path().join("log"),
        );
        Self { process: process.expect("the process of the command"), log }
    }

    /// Returns the id of the process.
    pub fn id(&self) -> i32 {
        self.process.id()
    }

    /// Returns the output so far, of standard output and standard error.
    ///
    /// # Panics
    ///
    /// If it contains a secret.
    pub fn log(&self) -> String {
        let log = std::fs::read_to_string(self.log.path().join("log")).unwrap_or_default();
        assert!(find_secret(&log).is_none(), "a secret: {log}");
        log
    }

    /// Sends a signal to the process alone.
    ///
    /// # Panics
    ///
    /// If the process has ended.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).expect("a command that runs");
    }

    /// Stops the process alone (SIGSTOP), and waits until it has stopped.
    ///
    /// # Panics
    ///
    /// If the process does not stop.
    pub fn freeze(&self) {
        self.process.stop(PATIENCE).expect("a command that stops");
    }

    /// Waits for the end of the process. A signal `n` that has ended it is the exit status 128 + n.
    ///
    /// # Panics
    ///
    /// If the process still runs after a minute.
    pub async fn ended(&mut self) -> ExitStatus {
        crate::eventually("the command ends", PATIENCE, async || {
            self.process.ended().expect("its exit status")
        })
        .await
    }

    /// Returns the exit status; `None` while the process runs.
    ///
    /// # Panics
    ///
    /// If the status cannot be read.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.process.ended().expect("its exit status")
    }

    /// Kills the process (SIGKILL), and waits until it has ended.
    pub fn kill(self) {
        self.process.kill();
    }
}
