//! Locks of several keys on real servers: one script per node, and nothing is half done.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use redlock_core::{
    ExtendError, ForeignKind, LockError, LockManager, NodeError, ReleaseError, Vote,
};
use redlock_tests::{Probe, RedisServer, Servers, eventually};

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(10);

async fn manager(urls: impl IntoIterator<Item = String>) -> LockManager {
    LockManager::builder()
        .urls(urls)
        .node_timeout(Duration::from_secs(2))
        .connect_timeout(SOON)
        .connect()
        .await
        .unwrap()
}

async fn one() -> (RedisServer, LockManager, Probe) {
    let server = RedisServer::start().await;
    let locks = manager([server.url()]).await;
    let probe = server.probe().await;
    (server, locks, probe)
}

fn vote(error: &LockError) -> Vote {
    let (_, vote) = error.votes().unwrap().iter().next().unwrap();
    vote.cloned().unwrap()
}

#[tokio::test]
async fn a_set_is_one_script_to_acquire_and_one_to_release() {
    let (_server, locks, mut probe) = one().await;
    probe.reset_calls().await;
    for _ in 0..10 {
        let set = locks.lock_all(["a", "b", "c", "d"]).expire(LONG);
        set.try_acquire().await.unwrap().release().await.unwrap();
    }
    let calls = probe.calls().await;
    let count = |name| calls.get(name).copied().unwrap_or_default();
    assert_eq!((count("evalsha"), count("eval"), count("script|load")), (20, 0, 0), "{calls:?}");
    // In the scripts: four keys each, and one DEL for all of them.
    assert_eq!((count("set"), count("del"), count("publish")), (40, 10, 40), "{calls:?}");
}

#[tokio::test]
async fn each_key_of_a_set_is_a_plain_lock_with_the_same_token() {
    let (_server, locks, mut probe) = one().await;
    let guard = locks.lock_all(["b", "a"]).expire(LONG).try_acquire().await.unwrap();
    let [a, b] = [probe.get("a").await.unwrap(), probe.get("b").await.unwrap()];
    assert_eq!((a.len(), &a), (32, &b));
    let set: Option<String> = probe.command(["SET", "b", "x", "NX", "PX", "1000"]).await;
    assert_eq!(set, None);
    guard.release().await.unwrap();
    assert_eq!(probe.keys().await, [""; 0]);
}

/// A value of another type, or without a time to live, is found before the first key is set.
#[tokio::test]
async fn a_foreign_key_refuses_the_set_before_anything_is_set() {
    let (_server, locks, mut probe) = one().await;
    for (set, found) in [
        (vec!["HSET", "c", "mode", "read"], ForeignKind::WrongType),
        (vec!["HSET", "c", "mode", "shared", "x", "1"], ForeignKind::WrongType),
        (vec!["HSET", "c", "mode", "shared", "r:x", "soon"], ForeignKind::WrongType),
        (vec!["RPUSH", "c", "x"], ForeignKind::WrongType),
        (vec!["SET", "c", "for ever"], ForeignKind::NoTimeToLive),
        (vec!["SET", "c", "long", "PX", "800000000"], ForeignKind::TimeToLiveTooLong),
    ] {
        probe.command::<()>(&set).await;
        for fenced in [false, true] {
            let set = locks.lock_all(["a", "b", "c", "d"]);
            let error = if fenced {
                set.fenced().try_acquire().await.map(drop).unwrap_err()
            } else {
                set.wait_time(SOON).acquire().await.map(drop).unwrap_err()
            };
            assert!(matches!(error, LockError::ForeignKey { .. }), "{error:?}");
            assert_eq!(error.key().unwrap().as_str(), "c");
            assert_eq!(vote(&error), Vote::foreign(found));
            assert_eq!(probe.keys().await, ["c"]);
        }
        probe.command::<()>(["DEL", "c"]).await;
    }
}

/// A hash replaced one of the keys of a held set.
#[tokio::test]
async fn a_key_of_another_type_is_left_alone_by_every_script() {
    let (_server, locks, mut probe) = one().await;
    let set = || locks.lock_all(["a", "b", "c"]).expire(LONG).fenced();
    let [extended, released, shortened] = [
        set().try_acquire().await.unwrap(),
        locks.lock_all(["d", "e"]).expire(LONG).fenced().try_acquire().await.unwrap(),
        locks
            .lock_all(["f", "g"])
            .expire(LONG)
            .min_hold(SOON)
            .fenced()
            .try_acquire()
            .await
            .unwrap(),
    ];
    for key in ["b", "e", "f"] {
        probe.command::<()>(["DEL", key]).await;
        probe.command::<()>(["HSET", key, "mode", "shared"]).await;
    }
    let error = extended.extend(LONG).await.unwrap_err();
    assert!(matches!(error, ExtendError::Lost { .. }), "{error:?}");
    for guard in [released, shortened] {
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Expired { .. }), "{error:?}");
    }
    drop(extended);
    eventually("the other keys are released", SOON, async || {
        let mut left = server_keys(&mut probe.clone()).await;
        left.sort();
        (left == ["b", "e", "f", "g"]).then_some(())
    })
    .await;
    // The kept key runs out after its minimum hold time, and not after its lease.
    assert!(probe.time_to_live("g").await.unwrap() <= SOON);
    assert_eq!(probe.command::<i64>(["PTTL", "b"]).await, -1, "the hash got a time to live");
}

async fn server_keys(probe: &mut Probe) -> Vec<String> {
    let keys = probe.keys().await.into_iter();
    keys.filter(|key| !key.contains("redlock:fencing")).collect()
}

/// The server checks all KEYS before it runs the script.
#[tokio::test]
async fn a_user_without_the_right_to_a_later_key_sets_no_key() {
    let (server, _, mut probe) = one().await;
    let rules = "ACL SETUSER app reset on >s3cret ~lock:* &* +@all";
    probe.command::<()>(rules.split(' ').collect::<Vec<_>>()).await;
    redlock_logs::remember_password("s3cret");
    let locks = manager([format!("redis://app:s3cret@127.0.0.1:{}", server.port())]).await;
    for keys in [["lock:a", "lock:b", "other"], ["a", "lock:b", "lock:c"]] {
        let error = locks.lock_all(keys).expire(LONG).try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(matches!(vote(&error), Vote::Failed(NodeError::NotPermitted(_))), "{error:?}");
        assert_eq!(probe.keys().await, [""; 0]);
    }
    let guard = locks.lock_all(["lock:a", "lock:b"]).try_acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// A selector (Redis 7) permits the script for all keys, but SET only for some. The script finds that out in
/// its middle.
#[tokio::test]
async fn a_script_that_fails_in_its_middle_leaves_no_key() {
    let (server, _, mut probe) = one().await;
    redlock_logs::remember_password("s3cret");
    let rules = [
        "ACL",
        "SETUSER",
        "app",
        "reset",
        "on",
        ">s3cret",
        "~*",
        "&*",
        "+@all",
        "-set",
        "(+set ~lock:* ~redlock:*)",
    ];
    if probe.try_command::<()>(&rules).await.is_err() {
        return redlock_tests::skip("the server has no selectors");
    }
    let locks = manager([format!("redis://app:s3cret@127.0.0.1:{}", server.port())]).await;
    let set = || locks.lock_all(["lock:a", "lock:b", "z"]).expire(LONG);
    for error in [
        set().try_acquire().await.map(drop).unwrap_err(),
        set().fenced().try_acquire().await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(vote(&error), Vote::Failed(NodeError::NotPermitted(_))), "{error:?}");
        assert_eq!(server_keys(&mut probe).await, [""; 0]);
    }
    set().try_acquire().await.map(drop).unwrap_err();
    locks.lock_all(["lock:a", "lock:b"]).try_acquire().await.unwrap().release().await.unwrap();
}

/// `SCRIPT FLUSH`, or a restart behind a proxy.
#[tokio::test]
async fn a_set_is_acquired_extended_and_released_after_its_scripts_were_forgotten() {
    let (_server, locks, mut probe) = one().await;
    let flush = async || probe.clone().command::<()>(["SCRIPT", "FLUSH"]).await;
    flush().await;
    let guard = locks.lock_all(["a", "b"]).expire(LONG).fenced().try_acquire().await.unwrap();
    flush().await;
    guard.extend(LONG).await.unwrap();
    flush().await;
    guard.release().await.unwrap();
    assert_eq!(server_keys(&mut probe).await, [""; 0]);
}

/// Each slot has a counter of its own.
#[tokio::test]
async fn the_number_of_a_set_is_given_out_by_each_of_its_counters() {
    let servers = Servers::start(3).await;
    let locks = manager(servers.urls()).await;
    let keys = ["order:42", "order:43", "order:44"];
    locks.lock_all(keys).fenced().try_acquire().await.unwrap().release().await.unwrap();
    let mut probes = Vec::new();
    for server in servers.iter() {
        probes.push(server.probe().await);
    }
    let counters: Vec<String> = probes[0].keys().await;
    assert_eq!(counters.len(), 3, "{counters:?}");
    let high = 8_000_000_000_000_000_i64;
    for probe in &mut probes {
        probe.command::<()>(["SET", &counters[1], &high.to_string()]).await;
    }
    let guard = locks.lock_all(keys).fenced().try_acquire().await.unwrap();
    assert_eq!(guard.fencing_token().number(), high + 1);
    guard.release().await.unwrap();
    // A majority of the counters of each key has the number, and so has the next holder of each key.
    for key in keys {
        let guard = locks.lock(key).fenced().try_acquire().await.unwrap();
        assert!(guard.fencing_token().number() > high + 1, "{key}");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_broken_counter_of_one_key_refuses_the_set_before_anything_is_set() {
    let (_server, locks, mut probe) = one().await;
    let set = || locks.lock_all(["order:42", "order:43"]).fenced();
    set().try_acquire().await.unwrap().release().await.unwrap();
    for counter in probe.keys().await {
        let before: String = probe.command(["GET", &counter]).await;
        probe.command::<()>(["SET", &counter, "nan"]).await;
        let error = set().try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(error.diagnostics().to_string().contains("fencing counter"), "{error:?}");
        assert_eq!(server_keys(&mut probe).await, [""; 0]);
        probe.command::<()>(["SET", &counter, &before]).await;
    }
    set().try_acquire().await.unwrap().release().await.unwrap();
}

/// One of five servers has lost only one of the keys. The extension finds that out, and the node gets the set
/// again.
#[tokio::test]
async fn a_node_that_lost_some_keys_of_a_set_gets_them_again() {
    let servers = Servers::start(5).await;
    let locks = manager(servers.urls()).await;
    for lost in [vec!["b"], vec!["a", "b", "c"]] {
        let guard = locks.lock_all(["a", "b", "c"]).expire(LONG).try_acquire().await.unwrap();
        eventually("each node has each key", SOON, async || {
            (servers.keys().await.len() == 15).then_some(())
        })
        .await;
        let mut probe = servers[4].probe().await;
        for key in &lost {
            probe.command::<()>(["DEL", key]).await;
        }
        guard.extend(LONG).await.unwrap();
        eventually("the node has the keys again", SOON, async || {
            (servers.keys().await.len() == 15).then_some(())
        })
        .await;
        let [a, b] = [probe.get("a").await.unwrap(), probe.get("b").await.unwrap()];
        assert_eq!(a, b);
        guard.release().await.unwrap();
        eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
            .await;
    }
}

/// A crashed process has left another key of the set on one of five servers. It does not hide the key that the
/// holder has.
#[tokio::test]
async fn the_key_that_most_nodes_name_is_the_key_that_is_waited_for() {
    let servers = Servers::start(5).await;
    let (one, other) = (manager(servers.urls()).await, manager(servers.urls()).await);
    servers[2].probe().await.command::<()>(["SET", "a", "left", "PX", "300000"]).await;
    let held = one.lock("c").expire(LONG).try_acquire().await.unwrap();
    let error = other.lock_all(["a", "b", "c"]).try_acquire().await.unwrap_err();
    assert_eq!(error.key().unwrap().as_str(), "c");
    let set = other.lock_all(["a", "b", "c"]).expire(LONG).wait_time(SOON);
    let waiting = tokio::spawn(set.acquire());
    tokio::time::sleep(Duration::from_millis(100)).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
