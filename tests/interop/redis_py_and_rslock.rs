//! Locks of redis-py and rslock on the same servers: each library respects the locks of the others.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::env;
use std::process::Command;
use std::time::Duration;

use redlock_core::{LockError, LockManager, ReleaseError};
use redlock_tests::{Nodes, Peer, RedisServer, Servers, eventually};

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";

pub(crate) async fn left(server: &RedisServer, key: &str) -> Duration {
    server.probe().await.time_to_live(key).await.unwrap()
}

/// Returns whether `left` is the rest of a lease of `asked` that began a moment ago.
pub(crate) fn is_fresh(left: Duration, asked: Duration) -> bool {
    left <= asked && left + SOON > asked
}

/// Starts a Python process with redis-py. If redis-py is missing, prints a message and returns `None`, or
/// panics in CI.
pub(crate) fn redis_py(port: u16) -> Option<Peer> {
    let python = env::var("REDLOCK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let import = Command::new(&python).args(["-c", "import redis.lock"]).output();
    if !import.is_ok_and(|import| import.status.success()) {
        redlock_tests::skip(&format!("{python} has no redis-py; tests/run.sh installs it"));
        return None;
    }
    let arguments = ["-c", include_str!("redis_py.py"), &port.to_string()];
    Some(Peer::start(Command::new(python).args(arguments)))
}

async fn with_redis_py() -> Option<(Servers, LockManager, Peer)> {
    let nodes = Nodes::redis(1).await;
    let locks = nodes.manager().await;
    let Nodes::Redis(servers) = nodes else { unreachable!() };
    let python = redis_py(servers[0].port())?;
    Some((servers, locks, python))
}

#[tokio::test]
async fn redis_py_respects_our_lock() {
    let Some((servers, locks, mut python)) = with_redis_py().await else { return };
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    assert!(is_fresh(left(&servers[0], KEY).await, LONG));
    assert_eq!(python.ask(&format!("acquire {KEY} 60 0")), "refused");
    guard.release().await.unwrap();
    assert_eq!(python.ask(&format!("acquire {KEY} 60 0")), "acquired");
}

#[tokio::test]
async fn we_respect_the_lock_of_redis_py() {
    let Some((servers, locks, mut python)) = with_redis_py().await else { return };
    let minute = Duration::from_secs(60);
    assert_eq!(python.ask(&format!("acquire {KEY} 60 0")), "acquired");
    assert!(is_fresh(left(&servers[0], KEY).await, minute));
    let error = locks.lock(KEY).try_acquire().await.unwrap_err();
    let LockError::Contended { remaining: Some(remaining), .. } = error else { panic!("{error}") };
    assert!(is_fresh(remaining, minute), "{remaining:?}");

    let waiting = tokio::spawn(locks.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    assert_eq!(python.ask(&format!("release {KEY}")), "released");
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert!(is_fresh(left(&servers[0], KEY).await, LONG));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn redis_py_waits_for_our_lock() {
    let Some((_servers, locks, mut python)) = with_redis_py().await else { return };
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    python.order(&format!("acquire {KEY} 60 60"));
    guard.release().await.unwrap();
    assert_eq!(python.answer(), "acquired");
    assert!(locks.lock(KEY).try_acquire().await.unwrap_err().is_contended());
}

#[tokio::test]
async fn neither_we_nor_redis_py_release_a_lock_of_the_other() {
    let Some((servers, locks, mut python)) = with_redis_py().await else { return };
    let short = Duration::from_millis(100);
    let late = locks.lock(KEY).expire(short).try_acquire().await.unwrap();
    assert_eq!(python.ask(&format!("acquire {KEY} 60 10")), "acquired");
    let error = late.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Expired { .. }), "{error}");
    assert!(is_fresh(left(&servers[0], KEY).await, Duration::from_secs(60)));

    assert_eq!(python.ask(&format!("extend {KEY} 0.1")), "extended");
    let waiting = locks.lock(KEY).expire(LONG).wait_time(LONG).acquire();
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(python.ask(&format!("release {KEY}")), "not owned");
    assert!(is_fresh(left(&servers[0], KEY).await, LONG));
    guard.release().await.unwrap();
}

/// A manager of rslock that makes only one attempt.
pub(crate) fn rslock(servers: &Servers) -> rslock::LockManager {
    let mut locks = rslock::LockManager::new(servers.urls());
    locks.set_retry(1, Duration::from_millis(1));
    locks
}

async fn with_rslock(count: usize) -> (Servers, LockManager, rslock::LockManager) {
    let nodes = Nodes::redis(count).await;
    let ours = nodes.manager().await;
    let Nodes::Redis(servers) = nodes else { unreachable!() };
    let theirs = rslock(&servers);
    (servers, ours, theirs)
}

async fn rslock_and_we_respect_each_other(count: usize) {
    let (servers, ours, theirs) = with_rslock(count).await;

    let guard = ours.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    for server in servers.iter() {
        let fresh = eventually("the node has the lock", SOON, async || {
            server.probe().await.time_to_live(KEY).await
        });
        assert!(is_fresh(fresh.await, LONG));
    }
    let refused = theirs.lock(KEY, LONG).await.unwrap_err();
    assert!(matches!(refused, rslock::LockError::Unavailable), "{refused}");
    guard.release().await.unwrap();

    let minute = Duration::from_secs(60);
    let lock =
        eventually("rslock gets the lock", SOON, async || theirs.lock(KEY, minute).await.ok());
    let lock = lock.await;
    let error = ours.lock(KEY).try_acquire().await.unwrap_err();
    let LockError::Contended { remaining: Some(remaining), .. } = error else { panic!("{error}") };
    assert!(is_fresh(remaining, minute), "{remaining:?}");

    let waiting = tokio::spawn(ours.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    theirs.unlock(&lock).await;
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    // A second release by rslock does not remove our lock.
    theirs.unlock(&lock).await;
    assert!(theirs.lock(KEY, LONG).await.is_err());
    guard.release().await.unwrap();
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

#[tokio::test]
async fn rslock_and_we_respect_each_other_on_one_node() {
    rslock_and_we_respect_each_other(1).await;
}

#[tokio::test]
async fn rslock_and_we_respect_each_other_on_five_nodes() {
    rslock_and_we_respect_each_other(5).await;
}
