//! The plain locks of other libraries beside shared locks: each side is refused while the other one holds.

use std::time::{Duration, Instant};

use redlock_core::{LockManager, LockRequest};
use redlock_tests::{Peer, Servers, eventually};

use super::redis_py_and_rslock::{redis_py, rslock, with_redis_py};
use super::{MINUTE, assert_held_for, assert_refused_for, entries, gets_the_lock};
use crate::{LONG, SOON, connect, no_key_is_left, start};

const KEY: &str = "catalogue";

/// The libraries that lock by `SET NX`.
struct Others {
    /// Missing where several servers are one lock, which redis-py does not know.
    redis_py: Option<Peer>,
    rslock: rslock::LockManager,
}

impl Others {
    async fn are_refused(&mut self) {
        if let Some(python) = &mut self.redis_py {
            assert_eq!(python.ask(&format!("acquire {KEY} 60 0")), "refused");
        }
        let refused = self.rslock.lock(KEY, MINUTE).await.unwrap_err();
        assert!(matches!(refused, rslock::LockError::Unavailable), "{refused}");
    }

    async fn are_granted(&mut self, servers: &Servers) {
        if let Some(python) = &mut self.redis_py {
            assert_eq!(python.ask(&format!("acquire {KEY} 60 0")), "acquired");
            assert_eq!(python.ask(&format!("release {KEY}")), "released");
        }
        let lock = self.rslock.lock(KEY, MINUTE).await.unwrap();
        self.rslock.unlock(&lock).await;
        no_key_is_left(servers).await;
    }
}

/// Starts servers, two managers of this library and the other libraries. Without redis-py, tests rslock alone.
async fn start_all(count: usize) -> (Servers, [LockManager; 2], Others) {
    let (servers, locks) = start(count).await;
    let other = connect(servers.urls()).await;
    let redis_py = if count == 1 { redis_py(servers[0].port()) } else { None };
    let rslock = rslock(&servers);
    (servers, [locks, other], Others { redis_py, rslock })
}

/// The commands by which a library without a program here acquires, extends and releases a lock.
struct Commands {
    name: &'static str,
    acquire: &'static [&'static str],
    refusal: redis::Value,
    extend: &'static [&'static str],
    release: &'static [&'static str],
}

/// Both libraries compare the token before they delete the key.
const RELEASE: [&str; 5] = [
    "EVAL",
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])",
    "1",
    KEY,
    "their token",
];

/// redsync 4 acquires by a command; node-redlock 5 compares the existence of the key by a script.
const COMMANDS: [Commands; 2] = [
    Commands {
        name: "redsync",
        acquire: &["SET", KEY, "their token", "PX", "60000", "NX"],
        refusal: redis::Value::Nil,
        extend: &[
            "EVAL",
            "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2])",
            "1",
            KEY,
            "their token",
            "90000",
        ],
        release: &RELEASE,
    },
    Commands {
        name: "node-redlock",
        acquire: &[
            "EVAL",
            "return redis.call('EXISTS', KEYS[1]) == 0 and redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1 or 0",
            "1",
            KEY,
            "their token",
            "60000",
        ],
        refusal: redis::Value::Int(0),
        extend: &[
            "EVAL",
            "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1",
            "1",
            KEY,
            "their token",
            "90000",
        ],
        release: &RELEASE,
    },
];

#[tokio::test]
async fn readers_and_the_commands_of_other_libraries_refuse_each_other() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    for Commands { name, acquire, refusal, extend, release } in COMMANDS {
        for request in [shared(&locks), locks.lock(KEY).permits(2).expire(LONG)] {
            let holder = request.clone().try_acquire().await.unwrap();
            let before = entries(&mut probe, KEY).await;
            assert_eq!(probe.command::<redis::Value>(acquire).await, refusal, "{name}");
            for command in [extend, release] {
                let error = probe.try_command::<redis::Value>(command).await.unwrap_err();
                assert!(error.to_string().contains("WRONGTYPE"), "{name}: {error}");
            }
            assert_eq!(entries(&mut probe, KEY).await, before, "{name}");
            holder.release().await.unwrap();

            assert_ne!(probe.command::<redis::Value>(acquire).await, refusal, "{name}");
            assert_refused_for(request.clone().try_acquire().await, MINUTE);
            assert_eq!(probe.command::<redis::Value>(extend).await, redis::Value::Int(1));
            assert_refused_for(request.clone().try_acquire().await, MINUTE * 3 / 2);
            let value: String = probe.command(["GET", KEY]).await;
            assert_eq!(value, "their token", "{name}");
            assert_eq!(probe.command::<redis::Value>(release).await, redis::Value::Int(1));
            request.try_acquire().await.unwrap().release().await.unwrap();
        }
    }
    no_key_is_left(&servers).await;
}

fn shared(locks: &LockManager) -> LockRequest {
    locks.lock(KEY).shared(true).expire(LONG)
}

/// Waits until this number of waiting processes has subscribed to the releases.
async fn until_listening(servers: &Servers, count: u64) {
    let mut probe = servers[0].probe().await;
    eventually("the readers listen", SOON, async || {
        let listeners: (String, u64) = probe.command(["PUBSUB", "NUMSUB", KEY]).await;
        (listeners.1 == count).then_some(())
    })
    .await;
}

/// Waits until each server has this number of readers.
async fn all_have_readers(servers: &Servers, count: usize) {
    for server in servers.iter() {
        let mut probe = server.probe().await;
        eventually("the server has the readers", SOON, async || {
            let entries = entries(&mut probe, KEY).await;
            (entries.matches("r:").count() == count).then_some(())
        })
        .await;
    }
}

async fn readers_refuse_plain_locks(count: usize) {
    let (servers, [one, two], mut others) = start_all(count).await;
    let first = shared(&one).try_acquire().await.unwrap();
    all_have_readers(&servers, 1).await;
    others.are_refused().await;
    let last = shared(&two).try_acquire().await.unwrap();
    all_have_readers(&servers, 2).await;
    others.are_refused().await;
    first.release().await.unwrap();
    others.are_refused().await;
    all_have_readers(&servers, 1).await;
    others.are_refused().await;
    last.release().await.unwrap();
    no_key_is_left(&servers).await;
    others.are_granted(&servers).await;
}

#[tokio::test]
async fn readers_refuse_plain_locks_on_one_node() {
    readers_refuse_plain_locks(1).await;
}

#[tokio::test]
async fn readers_refuse_plain_locks_on_five_nodes() {
    readers_refuse_plain_locks(5).await;
}

/// The mark of a waiting writer, which outlives the last reader, and the turn of the readers belong to the lock, so that a
/// plain lock does not overtake the writer and the readers. They live for 1 s and 50 ms, too short for a test. So the test
/// writes longer ones.
#[tokio::test]
async fn marks_and_the_turn_of_the_readers_refuse_plain_locks() {
    let (servers, _, mut others) = start_all(1).await;
    let mut probe = servers[0].probe().await;
    for entry in ["w:0123456789abcdef", "t"] {
        let time: (i64, u64) = probe.command(["TIME"]).await;
        let end = ((time.0 + 60) * 1000).to_string();
        probe.command::<()>(["ZADD", KEY, "0", "shared", &format!("-{end}"), entry]).await;
        probe.command::<()>(["PEXPIREAT", KEY, &end]).await;
        others.are_refused().await;
        assert_eq!(probe.command::<u64>(["ZCARD", KEY]).await, 2);
        probe.command::<()>(["DEL", KEY]).await;
    }
    others.are_granted(&servers).await;
}

#[tokio::test]
async fn redis_py_waits_for_the_last_reader() {
    let Some((servers, [one, two], mut python)) = with_redis_py().await else { return };
    let mut probe = servers[0].probe().await;
    let first = shared(&one).try_acquire().await.unwrap();
    let last = shared(&two).try_acquire().await.unwrap();
    probe.reset_calls().await;
    python.order(&format!("acquire {KEY} 60 60"));
    for (reader, refusals) in [(first, 2), (last, 4)] {
        eventually("redis-py is refused", SOON, async || {
            (probe.calls().await.get("set") >= Some(&refusals)).then_some(())
        })
        .await;
        assert!(entries(&mut probe, KEY).await.starts_with("r:"));
        reader.release().await.unwrap();
    }
    assert_eq!(python.answer(), "acquired");
    assert!(shared(&one).try_acquire().await.unwrap_err().is_contended());
}

/// The waiting readers get the lock after the release of the other library, which publishes nothing.
#[tokio::test]
async fn readers_wait_for_the_lock_of_redis_py() {
    let Some((servers, [one, two], mut python)) = with_redis_py().await else { return };
    assert_eq!(python.ask(&format!("acquire {KEY} 60 0")), "acquired");
    assert_refused_for(shared(&one).try_acquire().await, MINUTE);
    let waiting = [&one, &two].map(|locks| tokio::spawn(shared(locks).wait_time(LONG).acquire()));
    until_listening(&servers, 2).await;
    assert_eq!(python.ask(&format!("release {KEY}")), "released");
    for reader in waiting {
        let guard = gets_the_lock(reader).await;
        assert_eq!(python.ask(&format!("acquire {KEY} 60 0")), "refused");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn readers_wait_for_the_lease_of_redis_py() {
    let Some((servers, [one, _], mut python)) = with_redis_py().await else { return };
    let lease = Duration::from_secs(1);
    let begun = Instant::now();
    assert_eq!(python.ask(&format!("acquire {KEY} {} 0", lease.as_secs())), "acquired");
    let guard = gets_the_lock(tokio::spawn(shared(&one).wait_time(LONG).acquire())).await;
    // The server counts whole milliseconds.
    let waited = begun.elapsed();
    assert!(waited + Duration::from_millis(5) > lease, "{waited:?}");

    // The release comes too late, and leaves the reader alone.
    assert_eq!(python.ask(&format!("release {KEY}")), "WRONGTYPE");
    assert_eq!(entries(&mut servers[0].probe().await, KEY).await, "r: shared");
    assert_held_for(&servers[0], KEY, LONG).await;
    guard.release().await.unwrap();
}

/// redis-py reads the value of the lock as a string.
#[tokio::test]
async fn redis_py_does_not_see_readers() {
    let Some((_servers, [one, _], mut python)) = with_redis_py().await else { return };
    assert_eq!(python.ask(&format!("locked {KEY}")), "False");
    let guard = shared(&one).try_acquire().await.unwrap();
    assert_eq!(python.ask(&format!("locked {KEY}")), "WRONGTYPE");
    guard.release().await.unwrap();
    assert_eq!(python.ask(&format!("locked {KEY}")), "False");
    let guard = one.lock(KEY).try_acquire().await.unwrap();
    assert_eq!(python.ask(&format!("locked {KEY}")), "True");
    guard.release().await.unwrap();
}

async fn readers_wait_for_the_lock_of_rslock(count: usize) {
    let (servers, one) = start(count).await;
    let (two, theirs) = (connect(servers.urls()).await, rslock(&servers));
    let lock = theirs.lock(KEY, MINUTE).await.unwrap();
    assert_refused_for(shared(&one).try_acquire().await, MINUTE);
    let [first, last] =
        [&one, &two].map(|locks| tokio::spawn(shared(locks).wait_time(LONG).acquire()));
    until_listening(&servers, 2).await;
    theirs.unlock(&lock).await;
    let (first, last) = (gets_the_lock(first).await, gets_the_lock(last).await);
    // A second release by rslock leaves the readers alone.
    theirs.unlock(&lock).await;
    for reader in [&first, &last] {
        reader.extend(LONG).await.unwrap();
    }
    // A server that refused a reader before the first release gets the reader by its extension.
    all_have_readers(&servers, 2).await;
    assert!(theirs.lock(KEY, MINUTE).await.is_err());
    first.release().await.unwrap();
    last.release().await.unwrap();
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn readers_wait_for_the_lock_of_rslock_on_one_node() {
    readers_wait_for_the_lock_of_rslock(1).await;
}

#[tokio::test]
async fn readers_wait_for_the_lock_of_rslock_on_five_nodes() {
    readers_wait_for_the_lock_of_rslock(5).await;
}
