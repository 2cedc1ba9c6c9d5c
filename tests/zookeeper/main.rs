//! Locks in ZooKeeper while servers, networks, sessions and neighbours fail.

#![allow(clippy::unwrap_used, reason = "tests")]

mod access;
mod client;
mod counting;
mod curator;
mod evidence;
mod faults;
mod inspection;
mod kazoo;
mod limits;
mod numbers;
mod paths;
mod storm;

use std::time::Duration;

use redlock_core::{ConnectError, LockManager, LockManagerBuilder, NodeError, Vote};
use redlock_tests::{
    ZookeeperEnsemble, ZookeeperOptions, ZookeeperServer, builder, eventually, skip,
};

const SOON: Duration = Duration::from_secs(60);
const KEY: &str = "order:42";
/// A short session timeout. The shortest one of an ensemble of the harness has eight of its ticks.
const SESSION: Duration = Duration::from_secs(4);
/// A lease longer than any test, if no session ends.
const LONG: Duration = Duration::from_secs(300);

/// Starts a server, or uses the shared one; skips the test if there is no ZooKeeper.
async fn start(options: ZookeeperOptions) -> Option<ZookeeperServer> {
    options.start().await.inspect_err(|why| skip(why)).ok()
}

/// Starts an ensemble whose nodes have short sessions; skips the test if there is no ZooKeeper.
async fn start_ensemble() -> Option<ZookeeperEnsemble> {
    let options = ZookeeperEnsemble::options().session_timeout(SESSION);
    options.start().await.inspect_err(|why| skip(why)).ok()
}

/// Returns a builder for tests in which servers come back after seconds.
fn patient(url: &str) -> LockManagerBuilder {
    builder([url]).node_timeout(Duration::from_secs(1)).outage_grace(SOON)
}

async fn connect(url: &str) -> LockManager {
    patient(url).connect().await.unwrap()
}

/// Returns why the node has no vote.
async fn refused(builder: LockManagerBuilder) -> NodeError {
    let error = builder.connect().await.unwrap_err();
    let ConnectError::Unavailable { votes, .. } = &error else { panic!("{error:?}") };
    match votes.iter().next() {
        Some((_, Some(Vote::Failed(reason)))) => reason.clone(),
        _ => panic!("{votes}"),
    }
}

/// Waits until the manager acquires and releases a lock.
async fn serves(manager: &LockManager, key: &str) {
    eventually("the lock is acquired and released", SOON, async || {
        manager.lock(key).try_acquire().await.ok()?.release().await.ok()
    })
    .await;
}

/// Waits until the folder of the test has no lock and no waiter.
async fn no_lock_is_left(server: &ZookeeperServer) {
    eventually("no lock is left", SOON, async || {
        (server.locks_count().await == (0, 0)).then_some(())
    })
    .await;
}

/// Waits until this number of children is in the queue of the lock.
async fn are_queued(server: &ZookeeperServer, key: &str, count: usize) {
    eventually("the callers are in the queue", SOON, async || {
        (server.queue(key).await.len() == count).then_some(())
    })
    .await;
}
