//! Servers, networks and clocks that fail.

#![allow(clippy::unwrap_used, reason = "tests")]

mod back_at_once;
mod breaks;
mod broken_holders;
mod endless_cases;
mod killed_and_frozen;
mod network;
mod outages;
mod reconnect;
mod restarts;
mod storm;

use tokio::sync::RwLock;

/// Storms and measurements disturb each other where the tests of this binary are threads of one process.
static QUIET: RwLock<()> = RwLock::const_new(());
