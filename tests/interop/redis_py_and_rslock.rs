//! Locks of redis-py and rslock on the same servers: each library respects the locks of the others.

use std::env;
use std::process::Command;
use std::time::Duration;

use redlock_core::{LockManager, ReleaseError};
use redlock_tests::{Peer, Servers, eventually, skip};

use super::{MINUTE, assert_fresh, assert_held_for, assert_refused_for, gets_the_lock};
use crate::{LONG, SOON, connect, no_key_is_left, start};

const KEY: &str = "order:42";

/// Starts a Python process with redis-py. If redis-py is missing, skips the test and returns `None`.
pub(super) fn redis_py(port: u16) -> Option<Peer> {
    let python = env::var("REDLOCK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let import = Command::new(&python).args(["-c", "import redis.lock"]).output();
    if !import.is_ok_and(|import| import.status.success()) {
        skip(&format!("{python} has no redis-py; tests/run.sh installs it"));
        return None;
    }
    let arguments = ["-c", include_str!("redis_py.py"), &port.to_string()];
    Some(Peer::start(Command::new(python).args(arguments)))
}

/// Starts a server, two managers of this library and a process with redis-py, which may be missing.
pub(super) async fn with_redis_py() -> Option<(Servers, [LockManager; 2], Peer)> {
    let (servers, locks) = start(1).await;
    let other = connect(servers.urls()).await;
    let python = redis_py(servers[0].port())?;
    Some((servers, [locks, other], python))
}

/// A manager of rslock that makes only one attempt.
pub(super) fn rslock(servers: &Servers) -> rslock::LockManager {
    let mut locks = rslock::LockManager::new(servers.urls());
    locks.set_retry(1, Duration::from_millis(1));
    locks
}

#[tokio::test]
async fn redis_py_and_we_respect_and_wait_for_each_other() {
    let Some((servers, [locks, _], mut python)) = with_redis_py().await else { return };
    let request = || locks.lock(KEY).expire(LONG);
    let guard = request().try_acquire().await.unwrap();
    assert_held_for(&servers[0], KEY, LONG).await;
    assert_eq!(python.ask(&format!("acquire {KEY} 60 0")), "refused");
    python.order(&format!("acquire {KEY} 60 60"));
    guard.release().await.unwrap();
    assert_eq!(python.answer(), "acquired");

    assert_held_for(&servers[0], KEY, MINUTE).await;
    assert_refused_for(request().try_acquire().await, MINUTE);
    let waiting = tokio::spawn(request().wait_time(LONG).acquire());
    assert_eq!(python.ask(&format!("release {KEY}")), "released");
    let guard = gets_the_lock(waiting).await;
    assert_held_for(&servers[0], KEY, LONG).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn neither_we_nor_redis_py_release_a_lock_of_the_other() {
    let Some((servers, [locks, _], mut python)) = with_redis_py().await else { return };
    let late = locks.lock(KEY).expire(Duration::from_secs(2)).try_acquire().await.unwrap();
    assert_eq!(python.ask(&format!("acquire {KEY} 60 60")), "acquired");
    let error = late.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    assert_held_for(&servers[0], KEY, MINUTE).await;

    assert_eq!(python.ask(&format!("extend {KEY} 0.1")), "extended");
    let guard = gets_the_lock(tokio::spawn(locks.lock(KEY).expire(LONG).wait_time(LONG).acquire()));
    let guard = guard.await;
    assert_eq!(python.ask(&format!("release {KEY}")), "not owned");
    assert_held_for(&servers[0], KEY, LONG).await;
    guard.release().await.unwrap();
}

async fn rslock_and_we_respect_each_other(count: usize) {
    let (servers, ours) = start(count).await;
    let theirs = rslock(&servers);
    let request = || ours.lock(KEY).expire(LONG);

    let guard = request().try_acquire().await.unwrap();
    for server in servers.iter() {
        let left = eventually("the node has the lock", SOON, async || {
            server.probe().await.time_to_live(KEY).await
        });
        assert_fresh(left.await, LONG);
    }
    let refused = theirs.lock(KEY, LONG).await.unwrap_err();
    assert!(matches!(refused, rslock::LockError::Unavailable), "{refused}");
    guard.release().await.unwrap();

    let lock =
        eventually("rslock gets the lock", SOON, async || theirs.lock(KEY, MINUTE).await.ok());
    let lock = lock.await;
    assert_refused_for(request().try_acquire().await, MINUTE);
    let waiting = tokio::spawn(request().wait_time(LONG).acquire());
    theirs.unlock(&lock).await;
    let guard = gets_the_lock(waiting).await;
    // A second release by rslock does not remove our lock.
    theirs.unlock(&lock).await;
    assert!(theirs.lock(KEY, LONG).await.is_err());
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn rslock_and_we_respect_each_other_on_one_node() {
    rslock_and_we_respect_each_other(1).await;
}

#[tokio::test]
async fn rslock_and_we_respect_each_other_on_five_nodes() {
    rslock_and_we_respect_each_other(5).await;
}
