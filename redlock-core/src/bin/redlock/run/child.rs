//! The process of a command, in a process group of its own.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child as Process, Command};

use super::{of_signal, stub};
use crate::failure::Failure;

/// The program that is executed as a [stub](super::stub): this one, even if its file was replaced meanwhile.
#[cfg(target_os = "linux")]
const MYSELF: &str = "/proc/self/exe";

/// A command that runs.
pub(super) struct Child {
    process: Process,
    /// The group of the process, which has its id.
    group: Option<Pid>,
}

impl Child {
    /// Starts the command. Returns an exit status if it cannot be executed.
    pub(super) fn start<const N: usize>(
        words: &[OsString],
        environment: [(&str, String); N],
    ) -> Result<Self, ExitCode> {
        let mut command = command(words);
        command.envs(environment).process_group(0);
        if io::stdin().is_terminal() {
            // The kernel would stop a process in the background that reads from the terminal.
            command.stdin(Stdio::null());
        }
        let program = words.first().map_or_else(|| Path::new(""), Path::new);
        let process = command.spawn().map_err(|error| stub::not_executed(program, &error))?;
        let group = process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { process, group })
    }

    /// Sends a signal to the process group. A group that has ended gets none.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Waits for the end of the process, and returns its exit status: 128 and the number of the signal that has ended it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn wait(&mut self) -> Result<u8, Failure> {
        let status = self.process.wait().await;
        status.map(as_number).map_err(|error| Failure::new(format!("the command: {error}")))
    }
}

/// Looks for the program of the command, as the system does: in the folders of `PATH`, unless its name has a slash. Returns an exit
/// status if it cannot be executed. Called before the acquisition: a kept lock stays although no command has run.
pub(super) fn check(words: &[OsString]) -> Result<(), ExitCode> {
    let program = words.first().map_or_else(|| Path::new(""), Path::new);
    let has_slash = program.as_os_str().as_encoded_bytes().contains(&b'/');
    let places: Vec<PathBuf> = match std::env::var_os("PATH") {
        Some(folders) if !has_slash => {
            std::env::split_paths(&folders).map(|folder| folder.join(program)).collect()
        }
        // The system has a path of its own.
        None if !has_slash => return Ok(()),
        _ => vec![program.to_owned()],
    };
    let mut failure = io::Error::from(Errno::NOENT);
    for place in places {
        match executable(&place) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failure = error,
        }
    }
    Err(stub::not_executed(program, &failure))
}

fn executable(program: &Path) -> io::Result<()> {
    let file = std::fs::metadata(program)?;
    if file.is_file() && file.permissions().mode() & 0o111 != 0 {
        Ok(())
    } else {
        Err(Errno::ACCESS.into())
    }
}

fn as_number(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, signal) => of_signal(signal.unwrap_or_default()),
    }
}

#[cfg(target_os = "linux")]
fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(MYSELF);
    command.arg0("redlock");
    command.arg("__stub").arg(std::process::id().to_string()).arg("--").args(words);
    command
}

#[cfg(not(target_os = "linux"))]
fn command(words: &[OsString]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map(OsString::as_os_str).unwrap_or_default());
    command.args(words);
    command
}
