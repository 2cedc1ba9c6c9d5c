//! The entries of shared locks on real servers: after a fault, and after a change by others.

use std::time::Duration;

use redlock_core::LockError;
use redlock_tests::{RedisServer, Servers, connect, eventually};
use tokio::time::timeout;

use super::{KEY, LONG, SOON, exclusive, permit, shared};

/// A server whose memory is full refuses commands that need memory, unless a script has written before.
#[tokio::test]
async fn a_full_server_refuses_new_keys_only() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let (one, two) = (connect([server.url()]).await, connect([server.url()]).await);
    let request = |key: &str| one.lock(key).expire(LONG);
    // All scripts are loaded.
    request("other").shared(true).try_acquire().await.unwrap().release().await.unwrap();
    let reader = request(KEY).shared(true).try_acquire().await.unwrap();
    let permit = request("permit").permits(2).try_acquire().await.unwrap();
    let writer = request("writer").try_acquire().await.unwrap();
    let kept = request("kept").shared(true).min_hold(LONG / 2).try_acquire().await.unwrap();
    probe.command::<()>(["CONFIG", "SET", "maxmemory", "1"]).await;
    for free in [request("free"), request("free").shared(true), request("free").permits(2)] {
        let error = free.try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(error.diagnostics().to_string().contains("OOM"), "{}", error.diagnostics());
    }
    reader.extend(LONG * 2).await.unwrap();
    permit.extend(LONG * 2).await.unwrap();
    writer.downgrade().await.unwrap();
    writer.extend(LONG * 2).await.unwrap();
    for key in [KEY, "permit", "writer"] {
        assert!(probe.time_to_live(key).await > Some(LONG * 3 / 2), "{key}");
    }
    kept.release().await.unwrap();
    let left = probe.time_to_live("kept").await;
    assert!(left > Some(Duration::ZERO) && left <= Some(LONG / 2), "{left:?}");
    let another = two.lock(KEY).shared(true).expire(LONG).try_acquire().await.unwrap();
    for guard in [reader, another, permit, writer] {
        guard.release().await.unwrap();
    }
    assert_eq!(probe.keys().await, ["kept"]);
}

/// After a step of the server's clock by an hour, the end of a turn or of a dead writer's mark is an hour away.
#[tokio::test]
async fn entries_from_before_a_step_of_the_clock_keep_nobody_out() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let locks = connect([server.url()]).await;
    for (entry, request) in
        [("t", exclusive(&locks)), ("w:dead", shared(&locks)), ("w:dead", permit(&locks, 2))]
    {
        let time: (i64, i64) = probe.command(["TIME"]).await;
        let end = ((time.0 + 3600) * 1000).to_string();
        probe.command::<()>(["ZADD", KEY, "0", "shared", &format!("-{end}"), entry]).await;
        probe.command::<()>(["PEXPIREAT", KEY, &end]).await;
        let guard = timeout(SOON, request.wait_forever().acquire()).await.unwrap().unwrap();
        // The key ends with its last entry.
        assert!(probe.time_to_live(KEY).await <= Some(LONG), "{entry}");
        guard.release().await.unwrap();
        assert_eq!(probe.keys().await, [""; 0], "{entry}");
    }
}

/// The mark of a writer that has given up may be left on a node that has lost the lock. It refuses a plain acquisition.
#[tokio::test]
async fn an_exclusive_lock_is_restored_over_the_marks_of_writers() {
    let servers = Servers::start(3).await;
    let locks = connect(servers.urls()).await;
    let guard = exclusive(&locks).try_acquire().await.unwrap();
    let mut probe = servers[0].probe().await;
    eventually("the lock is restored before the mark ends", SOON, async || {
        let time: (i64, i64) = probe.command(["TIME"]).await;
        let end = time.0 * 1000 + time.1 / 1000 + 1000;
        probe.command::<()>(["DEL", KEY]).await;
        probe.command::<()>(["ZADD", KEY, "0", "shared", &format!("-{end}"), "w:left"]).await;
        probe.command::<()>(["PEXPIREAT", KEY, &end.to_string()]).await;
        guard.extend(LONG).await.unwrap();
        loop {
            let kind: String = probe.command(["TYPE", KEY]).await;
            let time: (i64, i64) = probe.command(["TIME"]).await;
            if kind == "string" || time.0 * 1000 + time.1 / 1000 >= end {
                return (kind == "string" && time.0 * 1000 + time.1 / 1000 < end).then_some(());
            }
        }
    })
    .await;
    guard.release().await.unwrap();
}

/// The lease on a server may end before the minimum time, if somebody else has shortened it.
#[tokio::test]
async fn a_minimum_time_never_prolongs_the_lease_of_a_reader() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let locks = connect([server.url()]).await;
    let reader = shared(&locks).min_hold(LONG).try_acquire().await.unwrap();
    let entries: Vec<String> = probe.command(["ZRANGE", KEY, "-1", "-1"]).await;
    let time: (i64, i64) = probe.command(["TIME"]).await;
    let end = ((time.0 + 60) * 1000).to_string();
    probe.command::<()>(["ZADD", KEY, &end, &entries[0]]).await;
    reader.release().await.unwrap();
    let score: i64 = probe.command(["ZSCORE", KEY, &entries[0]]).await;
    assert_eq!(score.to_string(), end);
}
