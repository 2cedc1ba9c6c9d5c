//! Sentinel groups as nodes: failovers, sentinels that disagree, and groups without sentinels.

mod announcements;
mod failover;
mod majority;
mod nightly;
mod outages;
mod partition;

use std::time::Duration;

use redlock_core::{ConnectError, LockManager, LockManagerBuilder, NodeError, Vote};
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

/// Returns the error of a manager with this URL as its only node.
async fn refused(url: &str) -> NodeError {
    let error = builder(url).connect().await.unwrap_err();
    let ConnectError::Unavailable { votes, .. } = &error else { panic!("{error}") };
    match votes.iter().next() {
        Some((_, Some(Vote::Failed(reason)))) => reason.clone(),
        other => panic!("{other:?}"),
    }
}
