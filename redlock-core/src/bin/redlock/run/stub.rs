//! Executes a command that ends with its parent.
//!
//! On Linux `redlock run` starts itself as this stub. It asks the kernel for SIGKILL when its parent ends, and then executes the
//! command in its place. So a `redlock run` that is killed takes its command along.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::arguments::StubArguments;
use crate::failure::complain;

/// The exit status of a command that does not exist, or cannot be executed, as that of a shell.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTED: u8 = 126;

/// Executes the command. Returns only if that fails.
pub(crate) fn execute(StubArguments { parent, command }: &StubArguments) -> ExitCode {
    if let Err(error) = end_with_parent(*parent) {
        complain(format!("the command is not bound to redlock: {error}"));
        return ExitCode::from(NOT_EXECUTED);
    }
    let Some((program, arguments)) = command.split_first() else {
        return ExitCode::from(NOT_FOUND);
    };
    let error = Command::new(program).args(arguments).exec();
    not_executed(program.as_ref(), &error)
}

/// Prints why a command was not executed, and returns the exit status.
pub(super) fn not_executed(program: &std::path::Path, error: &std::io::Error) -> ExitCode {
    complain(format!("{}: {error}", program.display()));
    let is_missing = error.kind() == ErrorKind::NotFound;
    ExitCode::from(if is_missing { NOT_FOUND } else { NOT_EXECUTED })
}

#[cfg(target_os = "linux")]
fn end_with_parent(parent: u32) -> std::io::Result<()> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};

    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before. Then another process is the parent, and no signal comes.
    let present = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if present == Some(parent) {
        Ok(())
    } else {
        Err(std::io::Error::other("its parent has ended"))
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent(_: u32) -> std::io::Result<()> {
    Ok(())
}
