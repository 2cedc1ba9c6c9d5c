//! The errors of the command, with their exit status.

use std::fmt::Display;
use std::process::ExitCode;

/// The exit status of a question whose answer is no: the lock is held, the holder is gone, a node is not sound.
pub(crate) const NO: u8 = 1;
/// The exit status of an error. clap uses the same for a mistake in the command line.
const ERROR: u8 = 2;

/// An error that ends the command.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// Creates an error with the exit status 2.
    pub(crate) fn new(message: impl Display) -> Self {
        Self { message: message.to_string(), status: ERROR }
    }

    /// Sets the exit status.
    pub(crate) fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Prints the error, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        complain(&self.message);
        ExitCode::from(self.status)
    }
}

/// Prints a line on standard error.
pub(crate) fn complain(message: impl Display) {
    // With standard error closed, nobody reads the line.
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("redlock: {message}\n"));
}
