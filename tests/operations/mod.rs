//! Properties that operators rely on: configuration, few permissions, no leaked secrets, encrypted connections.

mod configuration;
mod credentials;
mod groups;
mod least_privilege;
mod postgres;
mod rights;
mod secrets;
mod tls;

use std::process::{Command, Output};

pub(crate) use tls::certificates::Files;

/// Runs the calling test again, in a process of its own with these environment variables.
fn run_again(variables: &[(&str, &str)]) -> Output {
    let thread = std::thread::current();
    // The thread of a test has its name.
    let test = thread.name().unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", test]).envs(variables.iter().copied()).output().unwrap()
}
