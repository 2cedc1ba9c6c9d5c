//! Collects and checks the logs of the tests of all packages of this workspace.
//!
//! * [`Logs`] collects the log lines of one test.
//! * [`watch`] searches every log line for passwords and tokens with [`find_secret`]. A secret aborts
//!   the test process.
//!
//! The program of this package searches the output of a whole test run, also for [warnings](is_lock_order_warning) of the order of locks. `tests/run.sh` calls it.

#![allow(clippy::expect_used, reason = "a failure of the harness fails the test")]

mod logs;
mod secrets;

pub use logs::{Logs, do_not_watch, is_lock_order_warning, watch, watch_and_print};
pub use secrets::{find_secret, remember_password};
