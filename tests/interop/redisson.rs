//! A Java process with Redisson's `RLock` and this library exclude and wake each other.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use redlock_core::{LockError, LockManager, ReleaseError};
use redlock_tests::{Nodes, Peer, Probe, RedisServer, Servers, eventually};

const LONG: Duration = Duration::from_secs(300);
const MINUTE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(10);
/// A waiter within this time was woken by a message, because it polls after 250 ms at the earliest.
const WOKEN: Duration = Duration::from_millis(125);
const KEY: &str = "order:42";

/// Returns the directory with Redisson and the Java program. The first call creates it, which takes a while.
fn prepared() -> Result<&'static Path, String> {
    static PREPARED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let prepare = || {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("redisson");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/java/prepare.sh");
        match Command::new(script).arg(&directory).output() {
            Ok(output) if output.status.success() => Ok(directory.join("lib")),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    PREPARED.get_or_init(prepare).as_deref().map_err(Clone::clone)
}

/// Starts a Java process with Redisson. If the JDK or Maven is missing or Redisson cannot be downloaded, prints a
/// message and returns `None`, or panics in CI.
pub(crate) fn redisson(port: u16) -> Option<Peer> {
    let directory = match prepared() {
        Ok(directory) => directory,
        Err(why) => {
            redlock_tests::skip(&format!("no Redisson (needs a JDK and Maven): {}", why.trim()));
            return None;
        }
    };
    let mut java = Command::new("java");
    // These options make Java start faster.
    java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp"]);
    java.arg(format!("{0}:{0}/*", directory.display()));
    let mut peer = Peer::start(java.args(["RedissonPeer", &port.to_string()]));
    assert_eq!(peer.answer(), "ready");
    Some(peer)
}

/// Starts a server, a manager in the Redisson dialect, and a Java process, which may be missing.
async fn with_redisson() -> Option<(Servers, LockManager, Peer)> {
    let servers = Servers::start(1).await;
    let nodes = Nodes::Redis(servers).redisson();
    let locks = nodes.manager().await;
    let Nodes::Redisson(nodes) = nodes else { unreachable!() };
    let Nodes::Redis(servers) = *nodes else { unreachable!() };
    let java = redisson(servers[0].port())?;
    Some((servers, locks, java))
}

pub(crate) async fn left(server: &RedisServer, key: &str) -> Duration {
    server.probe().await.time_to_live(key).await.unwrap()
}

/// Returns whether `left` is the rest of a lease of `asked` that began a moment ago.
pub(crate) fn is_fresh(left: Duration, asked: Duration) -> bool {
    left <= asked && left + SOON > asked
}

/// Waits until a waiter has subscribed to the release of the lock and was refused once more. From then on
/// only the message wakes it. The refusals are counted by `PTTL`, which no other command since the last
/// `reset_calls` uses.
pub(crate) async fn until_it_sleeps(probe: &mut Probe, channel: &str) {
    eventually("the waiter sleeps", SOON, async || {
        let listeners: (String, u64) = probe.command(["PUBSUB", "NUMSUB", channel]).await;
        let refusals = probe.calls().await.get("pttl").copied();
        (listeners.1 == 1 && refusals >= Some(2)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn we_respect_an_rlock() {
    let Some((servers, locks, mut java)) = with_redisson().await else { return };
    assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "acquired");
    assert!(is_fresh(left(&servers[0], KEY).await, MINUTE));
    let error = locks.lock(KEY).try_acquire().await.unwrap_err();
    let LockError::Contended { remaining: Some(remaining), .. } = error else { panic!("{error}") };
    assert!(is_fresh(remaining, MINUTE), "{remaining:?}");
    // A lock that is held twice needs two releases.
    assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "acquired");
    assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
    assert!(locks.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();

    // A lease of -1 is Redisson's default lease, which it renews. It is the default of this library, too.
    let default = Duration::from_secs(30);
    assert_eq!(java.ask(&format!("lock {KEY} 0 -1")), "acquired");
    let error = locks.lock(KEY).try_acquire().await.unwrap_err();
    let LockError::Contended { remaining: Some(remaining), .. } = error else { panic!("{error}") };
    assert!(is_fresh(remaining, default), "{remaining:?}");
    assert_eq!(java.ask(&format!("unlock {KEY}")), "released");
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    assert!(is_fresh(left(&servers[0], KEY).await, default));
    guard.release().await.unwrap();
    assert!(servers.keys().await.is_empty());
}

#[tokio::test]
async fn an_rlock_respects_our_lock() {
    let Some((servers, locks, mut java)) = with_redisson().await else { return };
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    assert_eq!(java.ask(&format!("locked {KEY}")), "true");
    assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "refused");
    let seen: u64 = java.ask(&format!("remaining {KEY}")).parse().unwrap();
    assert!(is_fresh(Duration::from_millis(seen), LONG), "{seen}");
    guard.release().await.unwrap();
    assert_eq!(java.ask(&format!("locked {KEY}")), "false");
    assert_eq!(java.ask(&format!("lock {KEY} 0 60000")), "acquired");
    assert!(is_fresh(left(&servers[0], KEY).await, MINUTE));
}

#[tokio::test]
async fn the_unlock_of_an_rlock_wakes_our_waiter() {
    let Some((servers, locks, mut java)) = with_redisson().await else { return };
    let mut probe = servers[0].probe().await;
    let mut fastest = Duration::MAX;
    for key in [KEY, "order:{42}", KEY, "a{b}c", KEY, KEY] {
        let channel = match key {
            KEY => "redisson_lock__channel:{order:42}".to_owned(),
            braces => format!("redisson_lock__channel:{braces}"),
        };
        assert_eq!(java.ask(&format!("lock {key} 0 300000")), "acquired");
        probe.reset_calls().await;
        let waiting = tokio::spawn(locks.lock(key).expire(LONG).wait_time(LONG).acquire());
        until_it_sleeps(&mut probe, &channel).await;
        let unlocked = Instant::now();
        java.order(&format!("unlock {key}"));
        let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
        let waited = unlocked.elapsed();
        assert_eq!(java.answer(), "released");
        assert!(waited < Duration::from_secs(1), "{key}: {waited:?}");
        fastest = fastest.min(waited);
        guard.release().await.unwrap();
    }
    assert!(fastest < WOKEN, "{fastest:?}");
}

#[tokio::test]
async fn our_release_wakes_an_rlock() {
    let Some((servers, locks, mut java)) = with_redisson().await else { return };
    let mut probe = servers[0].probe().await;
    for (key, channel) in [
        (KEY, "redisson_lock__channel:{order:42}"),
        ("order:{42}", "redisson_lock__channel:order:{42}"),
    ] {
        let guard = locks.lock(key).expire(LONG).try_acquire().await.unwrap();
        probe.reset_calls().await;
        java.order(&format!("lock {key} 300000 60000"));
        until_it_sleeps(&mut probe, channel).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        // Without a message the Java process sleeps until the lease ends.
        assert_eq!(java.answer(), "acquired");
        assert!(released.elapsed() < SOON, "{:?}", released.elapsed());
        assert!(locks.lock(key).try_acquire().await.unwrap_err().is_contended());
        assert_eq!(java.ask(&format!("unlock {key}")), "released");
    }
}

/// Only the owner releases.
#[tokio::test]
async fn neither_we_nor_redisson_release_a_lock_of_the_other() {
    let Some((servers, locks, mut java)) = with_redisson().await else { return };
    let late = locks.lock(KEY).expire(Duration::from_millis(100)).try_acquire().await.unwrap();
    assert_eq!(java.ask(&format!("lock {KEY} 10000 300")), "acquired");
    let error = late.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Expired { .. }), "{error}");
    // The lock of the Java process expires, too, so its release is late.
    let waiting = locks.lock(KEY).expire(LONG).wait_time(LONG).acquire();
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(java.ask(&format!("unlock {KEY}")), "not owned");
    assert!(is_fresh(left(&servers[0], KEY).await, LONG));
    guard.release().await.unwrap();
}
