//! Locks of other libraries on the same servers, and a database that refuses a late holder.

mod nightly;
mod other_libraries;
mod plain_locks_and_readers;
mod postgres;
mod redis_py_and_rslock;
mod redisson;
mod redisson_and_readers;

use std::time::Duration;

use redlock_core::{LockError, LockGuard};
use redlock_tests::{Probe, RedisServer};
use tokio::task::JoinHandle;

use crate::SOON;

const MINUTE: Duration = Duration::from_secs(60);

/// Checks that a time is the rest of a lease of `asked` that began a moment ago.
fn assert_fresh(left: Duration, asked: Duration) {
    assert!(left <= asked && left + SOON > asked, "{left:?} of {asked:?}");
}

/// Checks that the server has a lock whose lease of `asked` began a moment ago.
async fn assert_held_for(server: &RedisServer, key: &str, asked: Duration) {
    assert_fresh(server.probe().await.time_to_live(key).await.unwrap(), asked);
}

/// Checks that an attempt was refused by a lock whose lease of `asked` began a moment ago.
fn assert_refused_for(attempt: Result<LockGuard, LockError>, asked: Duration) {
    let error = attempt.unwrap_err();
    let LockError::Contended { remaining: Some(left), .. } = error else { panic!("{error}") };
    assert_fresh(left, asked);
}

/// Waits until a caller in a task of its own has the lock.
async fn gets_the_lock(waiting: JoinHandle<Result<LockGuard, LockError>>) -> LockGuard {
    tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap()
}

/// Returns the members of the sorted set at a key without the tokens: `r: r: shared w:` for two readers and a waiting
/// writer. Returns an empty text if the key does not exist.
async fn entries(probe: &mut Probe, key: &str) -> String {
    let members: Vec<String> = probe.command(["ZRANGE", key, "0", "-1"]).await;
    let mut kinds: Vec<&str> = members
        .iter()
        .map(|member| member.split_inclusive(':').next().unwrap_or_default())
        .collect();
    kinds.sort_unstable();
    kinds.join(" ")
}
