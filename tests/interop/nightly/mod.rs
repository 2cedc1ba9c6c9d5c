//! Doubles of Redis that other programs use in their tests. `tests/run.sh --kind nightly` prepares and runs them.
//!
//! The table in `testing.md` says what works with each.

use std::env;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use redlock_core::{ConnectError, LockManager, LockRequest};
use redlock_logs::Logs;
use redlock_tests::{Peer, builder, eventually, java, skip};

use crate::{LONG, SOON};

const KEY: &str = "order:42";

/// Returns the folder in which `tests/tools.sh` has put the doubles. If it has not, skips the test and returns `None`.
fn folder() -> Option<PathBuf> {
    let folder = env::var_os("REDLOCK_TEST_DOWNLOADS").map(PathBuf::from);
    if folder.is_none() {
        skip("no doubles of Redis; tests/run.sh --kind nightly prepares them");
    }
    folder
}

/// A double in a process of its own.
struct Double {
    _process: Peer,
    url: String,
}

impl Double {
    /// Starts a program that prints its port.
    fn start(program: &mut Command) -> Self {
        let mut process = Peer::start(program);
        let url = format!("redis://127.0.0.1:{}", process.answer());
        Self { _process: process, url }
    }

    fn fakeredis() -> Option<Self> {
        let mut python = Command::new(folder()?.join("python/bin/python"));
        Some(Self::start(python.args(["-c", include_str!("fakeredis_server.py")])))
    }

    fn miniredis() -> Option<Self> {
        Some(Self::start(&mut Command::new(folder()?.join("miniredis"))))
    }

    fn jedis_mock() -> Option<Self> {
        folder()?;
        let mut java = java("jedis-mock").inspect_err(|why| skip(why)).ok()?;
        Some(Self::start(java.arg("JedisMockServer")))
    }

    async fn connect(&self) -> Result<LockManager, ConnectError> {
        builder([&self.url]).connect().await
    }
}

/// Checks a kind of locks: one manager holds, extends and releases the lock, and then another one gets it.
async fn is_handed_on(
    [locks, other]: &[LockManager; 2],
    kind: &str,
    request: impl Fn(&LockManager) -> LockRequest,
) {
    let acquire = async |locks: &LockManager| {
        let guard = request(locks).wait_time(SOON).acquire().await;
        guard.unwrap_or_else(|error| panic!("{kind}: {}", error.diagnostics()))
    };
    let guard = acquire(locks).await;
    guard.extend(LONG).await.unwrap();
    guard.release().await.unwrap();
    acquire(other).await.release().await.unwrap();
}

/// Checks what works with both doubles that are not refused. A waiter polls, and no other caller fails meanwhile.
async fn locks_work(double: &Double, logs: &Logs) -> [LockManager; 2] {
    let first = double.connect().await.unwrap();
    for (level, words) in [
        ("WARN", "the server keeps RESP2's rules for a connection with a subscription"),
        ("WARN", "the server does not execute INFO"),
    ] {
        assert_eq!(logs.count(level, words), 1, "{words}: {:?}", logs.lines());
    }
    let locks = [first, double.connect().await.unwrap()];
    is_handed_on(&locks, "exclusive", |locks| locks.lock(KEY)).await;
    is_handed_on(&locks, "shared", |locks| locks.lock(KEY).shared(true)).await;
    is_handed_on(&locks, "permits", |locks| locks.lock(KEY).permits(2)).await;
    is_handed_on(&locks, "several", |locks| locks.lock_all([KEY, "order:43"])).await;

    let [holder, other] = &locks;
    for fair in [false, true] {
        let guard = holder.lock(KEY).try_acquire().await.unwrap();
        let error = other.lock(KEY).try_acquire().await.unwrap_err();
        assert!(error.is_contended(), "{error}");
        let waiting = tokio::spawn(other.lock(KEY).fair(fair).wait_time(LONG).acquire());
        for number in 0..100 {
            let key = format!("order:{}", number + 100);
            for locks in &locks {
                locks.lock(&key).try_acquire().await.unwrap().release().await.unwrap();
            }
        }
        assert!(!waiting.is_finished(), "fair: {fair}");
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    let left = holder.lock(KEY).expire(SOON / 40).try_acquire().await.unwrap();
    left.keep_until_expiry();
    other.lock(KEY).wait_time(LONG).acquire().await.unwrap().release().await.unwrap();
    locks
}

#[tokio::test]
async fn fakeredis_has_locks_without_fencing() {
    let logs = Logs::collect();
    let Some(double) = Double::fakeredis() else { return };
    let [locks, other] = locks_work(&double, &logs).await;
    // Its scripts have no `redis.sha1hex`, so a refusal has neither the holder nor the time.
    let _held = locks.lock(KEY).try_acquire().await.unwrap();
    let error = other.lock(KEY).try_acquire().await.unwrap_err();
    assert!(error.diagnostics().to_string().ends_with("held by another holder"), "{error}");
    let error = locks.lock("fenced").fenced(true).try_acquire().await.unwrap_err();
    let diagnostics = error.diagnostics().to_string();
    assert!(diagnostics.contains("unexpected reply"), "{diagnostics}");
}

#[tokio::test]
async fn miniredis_has_locks_and_fencing() {
    let logs = Logs::collect();
    let Some(double) = Double::miniredis() else { return };
    let locks = locks_work(&double, &logs).await;
    is_handed_on(&locks, "fenced", |locks| locks.lock(KEY).fenced(true)).await;
    let [locks, other] = &locks;
    let _held = locks.lock(KEY).try_acquire().await.unwrap();
    let error = other.lock(KEY).try_acquire().await.unwrap_err();
    let diagnostics = error.diagnostics().to_string();
    assert!(diagnostics.contains("held by ") && diagnostics.contains(" for "), "{diagnostics}");
}

async fn is_refused(double: &Double, words: &str) {
    let error = double.connect().await.unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

#[tokio::test]
async fn jedis_mock_is_refused_because_it_has_no_resp3() {
    let Some(double) = Double::jedis_mock() else { return };
    is_refused(&double, "the server does not speak RESP3").await;
}

#[tokio::test]
async fn kevy_is_refused_because_it_has_no_scripts() {
    let Some(folder) = folder() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut kevy = Command::new(folder.join("kevy/bin/kevy"));
    kevy.args(["--no-aof", "--dir"]).arg(scratch.path());
    let process = Peer::start(kevy.args(["--port", &port.to_string()]));
    let double = Double { _process: process, url: format!("redis://127.0.0.1:{port}") };
    let listens = async || TcpStream::connect(("127.0.0.1", port)).ok();
    eventually("kevy listens", SOON, listens).await;
    is_refused(&double, "unknown command 'SCRIPT'").await;
}
