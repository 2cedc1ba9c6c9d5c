//! Releases and acquisitions by commands in place of scripts, on a server that has them, and the same operations where a command
//! is missing. On a server without these commands, the tests see the scripts.

use std::fmt::Debug;

use redis::Value;
use redlock_core::{LockGuard, LockManager};
use redlock_tests::{
    Direction, FailoverGroup, Logs, Probe, Proxy, RedisCluster, RedisOptions, RedisServer, Traffic,
    builder, connect, eventually,
};

use super::{LONG, SOON};

const KEY: &str = "order:42";
const SET: [&str; 3] = ["a", "b", "c"];
const PASSWORD: &str = "without-script-kfzu";
const ROUNDS: u64 = 5;
/// The commands that replace the script of a release.
const DELETES: [&str; 2] = ["DELIFEQ", "DELEX"];

/// Returns those of the commands that the server has.
async fn known<const N: usize>(probe: &mut Probe, names: [&'static str; N]) -> Vec<&'static str> {
    let mut known = Vec::new();
    for name in names {
        known.extend(probe.has_command(name).await.then_some(name));
    }
    known
}

/// Options of a server without the commands.
async fn without_commands() -> RedisOptions {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let known = known(&mut probe, [DELETES[0], DELETES[1], "MSETEX"]).await;
    known.into_iter().fold(RedisServer::options(), |options, name| options.rename(name, ""))
}

/// Returns how many releases the server has executed by a command, and how many scripts.
async fn releases(probe: &mut Probe) -> [u64; 2] {
    let calls = probe.calls().await;
    let count = |name: &str| calls.get(name).copied().unwrap_or_default();
    [count("delifeq") + count("delex"), count("evalsha")]
}

/// Locks and releases a few times, and returns the [`releases`].
async fn pairs(locks: &LockManager, key: &str, probe: &mut Probe) -> [u64; 2] {
    probe.reset_calls().await;
    for _ in 0..ROUNDS {
        locks.lock(key).expire(LONG).try_acquire().await.unwrap().release().await.unwrap();
        assert_eq!(probe.get(key).await, None);
    }
    releases(probe).await
}

/// The [`releases`] of a server with or without the command.
fn expected(has_command: bool) -> [u64; 2] {
    if has_command { [ROUNDS, 0] } else { [0, ROUNDS] }
}

#[tokio::test]
async fn a_key_that_nobody_waits_for_is_released_without_a_script() {
    let (newer, older) = (RedisServer::start().await, without_commands().await.start().await);
    for server in [&newer, &older] {
        let (mut probe, locks) = (server.probe().await, connect([server.url()]).await);
        let has_command = !known(&mut probe, DELETES).await.is_empty();
        assert_eq!(pairs(&locks, KEY, &mut probe).await, expected(has_command));
        let published = probe.calls().await["publish"];
        assert_eq!(published, ROUNDS);
        // Until the guard is dropped, and in the background.
        probe.reset_calls().await;
        drop(locks.lock(KEY).expire(LONG).try_acquire().await.unwrap());
        eventually("the lock is released", SOON, async || {
            probe.get(KEY).await.is_none().then_some(())
        })
        .await;
        assert_eq!(releases(&mut probe).await, expected(has_command).map(|count| count / ROUNDS));
    }
}

/// Several free keys are acquired by one command, and a set with a held key by the script, which names the holder.
#[tokio::test]
async fn several_keys_are_acquired_without_a_script() {
    let (newer, older) = (RedisServer::start().await, without_commands().await.start().await);
    for server in [&newer, &older] {
        let (mut probe, locks) = (server.probe().await, connect([server.url()]).await);
        let has_command = !known(&mut probe, ["MSETEX"]).await.is_empty();
        probe.reset_calls().await;
        for _ in 0..ROUNDS {
            let guard = locks.lock_all(SET).expire(LONG).try_acquire().await.unwrap();
            for key in SET {
                assert!(probe.time_to_live(key).await.unwrap() > LONG / 2);
            }
            guard.release().await.unwrap();
            assert_eq!(probe.keys().await, [""; 0]);
        }
        let calls = probe.calls().await;
        let count = |name: &str| calls.get(name).copied().unwrap_or_default();
        let by_script = if has_command { 0 } else { ROUNDS };
        assert_eq!([count("msetex"), count("evalsha")], [ROUNDS - by_script, ROUNDS + by_script]);

        let stranger = connect([server.url()]).await;
        let held = stranger.lock(SET[1]).expire(LONG).try_acquire().await.unwrap();
        for _ in 0..2 {
            let error = locks.lock_all(SET).try_acquire().await.unwrap_err();
            let is_named = format!("{error:?}").contains("remaining: Some");
            assert!(error.is_contended() && is_named, "{error:?}");
            assert_eq!(probe.keys().await, [SET[1]]);
        }
        held.release().await.unwrap();
        let guard = locks.lock_all(SET).expire(LONG).try_acquire().await.unwrap();
        assert_eq!(probe.keys().await.len(), SET.len());
        guard.release().await.unwrap();
        assert_eq!(probe.keys().await, [""; 0]);
    }
}

/// The right is missing from the beginning, is revoked while there is a connection, and is given back.
#[tokio::test]
async fn a_user_without_the_right_gets_scripts() {
    redlock_logs::remember_password(PASSWORD);
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let known = known(&mut probe, DELETES).await;
    let mut set_user = async |sign: &str| {
        let rights = known.iter().map(|name| format!(" {sign}{}", name.to_lowercase()));
        let rights: String = rights.collect();
        let user = format!("ACL SETUSER app reset on >{PASSWORD} ~* &* +@all{rights}");
        probe.command::<()>(user.split(' ').collect::<Vec<_>>()).await;
    };
    set_user("-").await;
    let url = server.url_at(&format!("app:{PASSWORD}@127.0.0.1"));
    let (logs, mut other) = (Logs::collect(), server.probe().await);
    let locks = builder([&url]).connect().await.unwrap();
    assert_eq!(pairs(&locks, KEY, &mut other).await, expected(false));
    drop(locks);

    set_user("+").await;
    let locks = builder([&url]).connect().await.unwrap();
    assert_eq!(pairs(&locks, KEY, &mut other).await, expected(!known.is_empty()));
    set_user("-").await;
    other.command::<()>(["ACL", "LOG", "RESET"]).await;
    assert_eq!(pairs(&locks, KEY, &mut other).await, expected(false));
    let denied: Vec<Value> = other.command(["ACL", "LOG"]).await;
    assert_eq!(denied.len(), usize::from(!known.is_empty()), "{denied:?}");
    assert_eq!(logs.count("WARN", ""), 0, "{:?}", logs.lines());

    // A new connection asks anew.
    set_user("+").await;
    other.disconnect_others().await;
    let _ = eventually("the manager has another connection", SOON, async || {
        locks.lock("other").try_acquire().await.ok()
    })
    .await;
    assert_eq!(pairs(&locks, KEY, &mut other).await, expected(!known.is_empty()));
}

/// The server is replaced by a newer version at the same address, and then by the older one.
#[tokio::test]
async fn a_server_that_is_upgraded_or_downgraded_is_asked_anew() {
    let (newer, older) = (RedisServer::start().await, without_commands().await.start().await);
    let proxy = Proxy::to(&older).await;
    let locks = connect([proxy.url()]).await;
    let has_command = !known(&mut newer.probe().await, DELETES).await.is_empty();
    for (server, has_command) in [(&older, false), (&newer, has_command), (&older, false)] {
        proxy.lead_to(server);
        proxy.reset();
        let mut probe = server.probe().await;
        eventually("the manager uses the server", SOON, async || {
            probe.reset_calls().await;
            locks.lock("other").try_acquire().await.ok()?.release().await.ok()?;
            probe.calls().await.contains_key("set").then_some(())
        })
        .await;
        assert_eq!(pairs(&locks, KEY, &mut probe).await, expected(has_command));
    }
}

/// Each master of a cluster has its own connection. A lock is released after its slot has moved.
#[tokio::test]
async fn the_masters_of_a_cluster_release_without_a_script() {
    let cluster = RedisCluster::start().await;
    let locks = connect([cluster.url()]).await;
    for master in 0..cluster.servers().len() {
        let (key, mut probe) = (cluster.key_on(master, KEY).await, cluster.probe(master).await);
        let has_command = !known(&mut probe, DELETES).await.is_empty();
        assert_eq!(pairs(&locks, &key, &mut probe).await, expected(has_command));
    }
    let key = cluster.key_on(0, KEY).await;
    let slot = cluster.slot(&key).await;
    let guard = locks.lock(&key).expire(LONG).try_acquire().await.unwrap();
    cluster.begin_move(slot, 0, 1).await;
    // The key stays, and then it is at the other master.
    guard.release().await.unwrap();
    assert_eq!(cluster.keys().await, [""; 0]);
    let guard = locks.lock(&key).expire(LONG).try_acquire().await.unwrap();
    cluster.finish_move(slot, 0, 1).await;
    guard.release().await.unwrap();
    assert_eq!(cluster.keys().await, [""; 0]);
    let mut probe = cluster.probe(1).await;
    let has_command = !known(&mut probe, DELETES).await.is_empty();
    assert_eq!(pairs(&locks, &key, &mut probe).await, expected(has_command));
}

/// The promoted server has a connection of its own.
#[tokio::test]
async fn the_masters_of_a_sentinel_group_release_without_a_script() {
    let group = FailoverGroup::start().await;
    let locks = connect([group.url()]).await;
    let first = group.master().await;
    for is_promoted in [false, true] {
        let master = if is_promoted { group.fail_over().await } else { first };
        let mut probe = group.servers[master].probe().await;
        let has_command = !known(&mut probe, DELETES).await.is_empty();
        eventually("the manager uses the master", SOON, async || {
            probe.reset_calls().await;
            locks.lock("other").try_acquire().await.ok()?.release().await.ok()?;
            probe.calls().await.contains_key("set").then_some(())
        })
        .await;
        assert_eq!(pairs(&locks, KEY, &mut probe).await, expected(has_command));
    }
}

/// What a caller learns if the key is not that of its lock any more.
#[tokio::test]
async fn a_release_of_another_value_ends_as_by_the_script() {
    const SCENARIOS: [(&str, &[&[&str]]); 5] = [
        ("the key has expired", &[&["DEL", KEY]]),
        ("another holder has the lock", &[&["SET", KEY, "another", "PX", "300000"]]),
        ("a foreign value", &[&["SET", KEY, "foreign"]]),
        ("another type", &[&["DEL", KEY], &["LPUSH", KEY, "1"]]),
        ("the key of another kind of lock", &[&["DEL", KEY], &["ZADD", KEY, "1", "r:x"]]),
    ];
    let (newer, older) = (RedisServer::start().await, without_commands().await.start().await);
    for (scenario, commands) in SCENARIOS {
        let mut results = Vec::new();
        for server in [&newer, &older] {
            let (mut probe, locks) = (server.probe().await, connect([server.url()]).await);
            let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
            for command in commands {
                probe.command::<Value>(*command).await;
            }
            let before: Value = probe.command(["DUMP", KEY]).await;
            let released = guard.release().await;
            let after: Value = probe.command(["DUMP", KEY]).await;
            assert_eq!(after, before, "{scenario}: only the owner releases");
            results.push(legible(&released).replace(&server.port().to_string(), "port"));
            probe.command::<Value>(["DEL", KEY]).await;
        }
        assert!(results[0].starts_with("Err"), "{scenario}: {results:?}");
        assert_eq!(results[0], results[1], "{scenario}");
    }
}

fn legible(result: &impl Debug) -> String {
    format!("{result:?}")
}

/// The server has executed the release, and its reply is lost, or a part of it.
#[tokio::test]
async fn a_release_whose_reply_is_lost_ends_as_by_the_script() {
    let (newer, older) = (RedisServer::start().await, without_commands().await.start().await);
    for bytes in [0, 2, 4, 6] {
        let mut results = Vec::new();
        for server in [&newer, &older] {
            let proxy = Proxy::to(server).await;
            let (locks, waiter) = (connect([proxy.url()]).await, connect([server.url()]).await);
            let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
            let waiting = tokio::spawn(waiter.lock(KEY).expire(LONG).wait_time(SOON).acquire());
            let mut probe = server.probe().await;
            eventually("the waiter is subscribed", SOON, async || {
                let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS", KEY]).await;
                (!channels.is_empty()).then_some(())
            })
            .await;
            proxy.set(Direction::ToClient, Traffic::ResetAfter(bytes));
            let released = guard.release().await;
            proxy.set(Direction::ToClient, Traffic::Pass);
            results.push(legible(&released).split(':').next().unwrap_or_default().to_owned());
            let next: LockGuard =
                tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
            next.release().await.unwrap();
        }
        // The whole reply of the script has four bytes. That of the commands may end between the two.
        assert!(results[0] == results[1] || bytes >= 4, "{bytes}: {results:?}");
    }
}

/// The first release notifies the waiter, and the others are scripts until nobody waits.
#[tokio::test]
async fn while_somebody_waits_a_lock_is_released_by_the_script() {
    let server = RedisServer::start().await;
    let (locks, mut probe) = (connect([server.url()]).await, server.probe().await);
    let has_command = !known(&mut probe, DELETES).await.is_empty();
    let mut listener = redlock_tests::Monitor::connect(&server.url()).await.unwrap();
    let subscriber = redis::Client::open(server.url()).unwrap();
    let mut subscriber = subscriber.get_async_pubsub().await.unwrap();
    subscriber.subscribe(KEY).await.unwrap();
    let [by_command, scripts] = pairs(&locks, KEY, &mut probe).await;
    // The script of the turn follows the command.
    assert_eq!([by_command, scripts], [u64::from(has_command), ROUNDS]);
    drop(subscriber);
    eventually("nobody is subscribed", SOON, async || {
        let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS", KEY]).await;
        channels.is_empty().then_some(())
    })
    .await;
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
    assert_eq!(pairs(&locks, KEY, &mut probe).await, expected(has_command));
    probe.command::<()>(["SET", "the end", ""]).await;
    let lines = listener.until(|line| line.contains("the end")).await;
    let published = format!("\"PUBLISH\" \"{KEY}\"");
    let published = lines.iter().filter(|line| line.contains(&published)).count() as u64;
    assert_eq!(published, 2 * ROUNDS + 1);
}
