//! Sentinel groups as nodes: failovers, and groups without sentinels.

mod failover;
mod outages;
mod partition;

use std::time::Duration;

use redlock_core::{LockManager, LockManagerBuilder};
use tokio::sync::Mutex;

/// Failovers disturb each other: a late process counts as down.
static QUIET: Mutex<()> = Mutex::const_new(());

/// Deadline for actions that take no time on an idle machine, and for failovers.
const SOON: Duration = Duration::from_secs(20);
const KEY: &str = "order:42";

/// Returns a builder whose node counts as silent after a second.
fn builder(url: &str) -> LockManagerBuilder {
    LockManager::builder().url(url).node_timeout(Duration::from_secs(1)).connect_timeout(SOON / 4)
}
