//! Locks in PostgreSQL while servers, networks and poolers fail.

#![allow(clippy::unwrap_used, reason = "tests")]

mod access;
mod clock;
mod failover;
mod idle;
mod inspection;
mod killed_and_frozen;
mod load;
mod network;
mod pooler;
mod row_locks;
mod rows;
mod setup;
mod transactions;
mod versions;
mod without_a_promise;

use std::time::Duration;

use redlock_core::{LockError, LockGuard, LockManager, LockManagerBuilder, NodeError, Vote};
use redlock_tests::{PostgresServer, builder, eventually, skip};

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(60);
const KEY: &str = "order:42";

/// Starts a server; skips the test if there is no PostgreSQL.
async fn start() -> Option<PostgresServer> {
    PostgresServer::start().await.inspect_err(|why| skip(why)).ok()
}

/// Returns a builder for tests that wait until a server counts as silent.
fn impatient(url: &str) -> LockManagerBuilder {
    let builder = builder([url]).node_timeout(Duration::from_secs(1));
    // A server may need some seconds to start again.
    builder.connect_timeout(Duration::from_secs(5)).outage_grace(SOON)
}

/// Connects for a test in which no server counts as silent, however busy the machine is.
async fn connect_patient(url: &str) -> LockManager {
    impatient(url).node_timeout(SOON).expire(LONG).connect().await.unwrap()
}

async fn connect(url: &str) -> LockManager {
    impatient(url).connect().await.unwrap()
}

/// Returns the failed vote of the only node.
fn failure(error: &LockError) -> &NodeError {
    let vote = error.votes().and_then(|votes| votes.iter().find_map(|(_, vote)| vote));
    let Some(Vote::Failed(reason)) = vote else { panic!("{error:?}") };
    reason
}

/// Waits until an abandoned attempt has left no lock behind.
async fn no_lock_is_left(server: &PostgresServer) {
    eventually("no lock is left", SOON, async || (server.locks_count().await == 0).then_some(()))
        .await;
}

/// Waits until the manager acquires a fenced lock with a long lease.
async fn acquire(manager: &LockManager, key: &str) -> LockGuard {
    eventually("the lock is acquired", SOON, async || {
        manager.lock(key).fenced(true).expire(LONG).try_acquire().await.ok()
    })
    .await
}

/// Waits until the holder reaches its lock.
async fn is_held(guard: &LockGuard) {
    eventually("the lease is extended", SOON, async || guard.extend(LONG).await.ok()).await;
}

/// Waits until the manager acquires and releases a lock.
async fn serves(manager: &LockManager, key: &str) {
    eventually("the lock is acquired and released", SOON, async || {
        manager.lock(key).try_acquire().await.ok()?.release().await.ok()
    })
    .await;
}

/// Waits until the manager is refused because another holder has the lock.
async fn is_contended(manager: &LockManager, key: &str) {
    eventually("the server answers", SOON, async || {
        let error = manager.lock(key).try_acquire().await.unwrap_err();
        error.is_contended().then_some(())
    })
    .await;
}
