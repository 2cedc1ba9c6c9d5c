//! What is logged in the tests of all packages of this workspace.
//!
//! * [`Logs`] collects it, for a test that wants to see it.
//! * [`watch`] searches all of it for passwords and tokens, by [`find_secret`]: a secret ends the test
//!   run.
//!
//! The program of this package searches what the whole run has printed; `tests/run.sh` calls it.

#![allow(clippy::expect_used, reason = "a failure of the harness fails the test")]

mod logs;
mod secrets;

pub use logs::{Logs, watch};
pub use secrets::{find_secret, remember_password};
