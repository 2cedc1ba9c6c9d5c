//! An axum application in a process of its own.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::eventually::eventually;
use crate::process::Process;
use crate::scratch::scratch;
use redlock_logs::{find_secret, is_lock_order_warning};

/// The longest time for a start or an orderly shutdown, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that listens on the address in the environment variable `LISTEN`, and logs a line that ends with
/// `listening on <address>`. Dropping the value ends the process.
#[derive(Debug)]
pub struct Service {
    process: Process,
    log: Log,
    address: String,
}

/// The log file of a service. Its destructor searches it for secrets, and for warnings of the order of locks.
#[derive(Debug)]
struct Log(TempDir);

impl Service {
    /// Starts `program` with a free port to listen on, and waits until it listens.
    ///
    /// # Panics
    ///
    /// If the program does not listen within a minute.
    pub async fn start(program: impl AsRef<Path>, environment: &[(&str, String)]) -> Self {
        let dir = Log(scratch());
        let log = dir.path();
        let mut environment = environment.to_vec();
        environment.push(("LISTEN", "127.0.0.1:0".to_owned()));
        environment.push(("NO_COLOR", "1".to_owned()));
        // A busy machine does not connect within the default of 1 s.
        if environment.iter().all(|(name, _)| *name != "LOCKS_CONNECT_TIMEOUT") {
            environment.push(("LOCKS_CONNECT_TIMEOUT", "60s".to_owned()));
        }
        let program = program.as_ref().as_os_str();
        let mut process =
            Process::start(program, [""; 0], &environment, &log).expect("the service's process");
        let address = eventually("the service listens", PATIENCE, async || {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            let ended = process.ended().expect("the service's exit status");
            assert!(ended.is_none(), "the service ended: {log}");
            let (_, rest) = log.split_once("listening on ")?;
            let (line, _) = rest.split_once('\n')?;
            Some(line.trim().to_owned())
        })
        .await;
        Self { process, log: dir, address }
    }

    /// Returns the URL of `path` on this service.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the address that the service listens on.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the id of the process.
    pub fn process_id(&self) -> i32 {
        self.process.id()
    }

    /// Returns the log so far.
    ///
    /// # Panics
    ///
    /// If the log cannot be read.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).expect("the service's log")
    }

    /// Stops the process (SIGSTOP), and waits until it has stopped.
    ///
    /// # Panics
    ///
    /// If the process does not stop.
    pub fn freeze(&self) {
        self.process.stop(PATIENCE).expect("a service that stops");
    }

    /// Continues the process (SIGCONT) after [`freeze`](Self::freeze).
    ///
    /// # Panics
    ///
    /// If the process has ended.
    pub fn thaw(&self) {
        self.process.signal(Signal::CONT).expect("a service that goes on");
    }

    /// Sends SIGTERM and waits until the process has ended.
    ///
    /// # Panics
    ///
    /// If the process still runs after a minute.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.end(Signal::TERM).await
    }

    /// Sends SIGINT, as Ctrl-C does, and waits until the process has ended.
    ///
    /// # Panics
    ///
    /// If the process still runs after a minute.
    pub async fn interrupt(&mut self) -> ExitStatus {
        self.end(Signal::INT).await
    }

    async fn end(&mut self, signal: Signal) -> ExitStatus {
        self.process.signal(signal).expect("a signal to the service");
        let process = &mut self.process;
        eventually("the service ends at the signal", PATIENCE, async || {
            process.ended().expect("the service's exit status")
        })
        .await
    }

    /// Kills the process (SIGKILL) and waits until it has ended.
    pub fn kill(self) {
        self.process.kill();
    }
}

impl Log {
    fn path(&self) -> PathBuf {
        self.0.path().join("log")
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let log = std::fs::read_to_string(self.path()).unwrap_or_default();
        let is_wrong = |line: &&str| find_secret(line).is_some() || is_lock_order_warning(line);
        if let Some(line) = log.lines().find(is_wrong)
            && !std::thread::panicking()
        {
            panic!("a service has logged a secret, or a warning that no test expects: {line}");
        }
    }
}
