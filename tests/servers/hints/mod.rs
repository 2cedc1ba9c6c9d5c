//! Holders that learn at once that their lock is gone, because the server tracks its keys; and waiters behind locks of other
//! libraries.
//!
//! Each lease is so long that neither its end nor a renewal can be the reason: without the hint, every one of these tests
//! waits for longer than its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redlock_core::{Dialect, LockGuard, LockManager};
use redlock_tests::{
    Logs, Play, PlayedServer, Probe, RedisServer, Servers, builder, connect, eventually,
};

use super::{LONG, SOON, start};

const KEY: &str = "order:42";

/// The way in which a lock gets lost.
#[derive(Debug, Clone, Copy)]
enum Cause {
    Deleted,
    Replaced,
    OfAnotherType,
    Flushed,
    Broken,
    Evicted,
}

impl Cause {
    const ALL: [Self; 6] = [
        Self::Deleted,
        Self::Replaced,
        Self::OfAnotherType,
        Self::Flushed,
        Self::Broken,
        Self::Evicted,
    ];

    async fn happen(self, servers: &Servers) {
        if let Self::Broken = self {
            return break_all(&connect(servers.urls()).await).await;
        }
        // All servers at once: a lock that a minority has lost is set again there.
        let mut probes = Vec::new();
        for server in servers.iter() {
            probes.push(server.probe().await);
        }
        join_all(probes.iter_mut().map(|probe| self.happen_on(probe))).await;
    }

    async fn happen_on(self, probe: &mut Probe) {
        match self {
            Self::Deleted => probe.command::<()>(["DEL", KEY]).await,
            Self::Replaced => probe.command(["SET", KEY, "another", "PX", "300000"]).await,
            Self::OfAnotherType => {
                probe.command::<()>(["DEL", KEY]).await;
                probe.command::<()>(["RPUSH", KEY, "1"]).await;
            }
            Self::Flushed => probe.command(["FLUSHALL"]).await,
            Self::Broken => {}
            Self::Evicted => {
                probe.command::<()>(["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
                probe.command::<()>(["CONFIG", "SET", "maxmemory", "1"]).await;
                // A command that needs memory evicts all keys first, and is then refused.
                let _ = probe.try_command::<()>(["SET", "filler", "1"]).await;
                probe.command::<()>(["CONFIG", "SET", "maxmemory", "0"]).await;
                assert_eq!(probe.get(KEY).await, None, "the lock is not evicted");
            }
        }
    }
}

async fn break_all(locks: &LockManager) {
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let status = locks.status(KEY).dialect(dialect).await.unwrap();
        for holder in status.holders() {
            locks.break_lock(KEY, holder).await.unwrap();
        }
    }
}

async fn is_lost(guard: &LockGuard, what: &str) {
    let lost = tokio::time::timeout(SOON, guard.lost()).await;
    assert!(lost.is_ok(), "{what}: the holder does not learn of its loss");
    assert!(!guard.is_valid(), "{what}");
}

/// Waits until each server has read the key of the lock for its holder so often.
async fn tracked(servers: &Servers, reads: u64) {
    for server in servers.iter() {
        let mut probe = server.probe().await;
        eventually("the server tracks the key", SOON, async || {
            let calls = probe.calls().await;
            let caching = calls.get("client|caching").or_else(|| calls.get("client"));
            (caching.copied() >= Some(reads)).then_some(())
        })
        .await;
    }
}

async fn reset(servers: &Servers) {
    for server in servers.iter() {
        server.probe().await.reset_calls().await;
    }
}

#[tokio::test]
async fn a_holder_learns_at_once_that_its_lock_is_gone() {
    for count in [1, 5] {
        let (servers, locks) = start(count).await;
        for cause in Cause::ALL {
            for (dialect, extensions) in
                [(Dialect::Plain, 0), (Dialect::Plain, 3), (Dialect::Redisson, 3)]
            {
                let what = format!("{count} servers, {cause:?}, {dialect:?}, {extensions}");
                for server in servers.iter() {
                    server.probe().await.command::<()>(["FLUSHALL"]).await;
                }
                let request = locks.lock(KEY).expire(LONG).dialect(dialect);
                let guard = request.try_acquire().await.unwrap();
                reset(&servers).await;
                let lost = guard.lost();
                tracked(&servers, 1).await;
                for _ in 0..extensions {
                    guard.extend(2 * LONG).await.unwrap();
                }
                tracked(&servers, 1 + extensions).await;
                cause.happen(&servers).await;
                drop(lost);
                is_lost(&guard, &what).await;
            }
        }
    }
}

/// The lock is lost between its acquisition and the first call.
#[tokio::test]
async fn a_loss_before_the_first_call_is_found_by_it() {
    for count in [1, 5] {
        let (servers, locks) = start(count).await;
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        Cause::Deleted.happen(&servers).await;
        is_lost(&guard, "before the call").await;
    }
}

/// The votes decide: a minority that has lost the lock gets it again, and the hints go on for the restored lock.
#[tokio::test]
async fn a_minority_that_has_lost_the_lock_gets_it_again_at_once() {
    let (servers, locks) = start(5).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    reset(&servers).await;
    let _lost = guard.lost();
    tracked(&servers, 1).await;
    for round in 0..3 {
        for server in &servers[..2] {
            server.probe().await.command::<()>(["DEL", KEY]).await;
        }
        for server in &servers[..2] {
            let mut probe = server.probe().await;
            eventually("the lock is set again", SOON, async || probe.get(KEY).await).await;
        }
        assert!(guard.is_valid(), "round {round}");
    }
    Cause::Flushed.happen(&servers).await;
    is_lost(&guard, "after the restore").await;
}

/// A key with the same name in another database, and a change of the time to live, leave the lock to its holder.
#[tokio::test]
async fn a_hint_alone_ends_no_lock() {
    let (servers, locks) = start(1).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    reset(&servers).await;
    let _lost = guard.lost();
    tracked(&servers, 1).await;
    let mut probe = servers[0].probe().await;
    let mut reads = 1;
    for command in [
        &["PEXPIRE", KEY, "600000"][..],
        &["EVAL", "redis.call('SELECT', 1) return redis.call('SET', KEYS[1], '1')", "1", KEY],
        &["EVAL", "redis.call('SELECT', 1) return redis.call('DEL', KEYS[1])", "1", KEY],
    ] {
        probe.command::<redis::Value>(command).await;
        reads += 1;
        tracked(&servers, reads).await;
        assert!(guard.is_valid(), "{command:?}");
    }
    Cause::Deleted.happen(&servers).await;
    is_lost(&guard, "after hints").await;
}

/// The costs of hints are those of the holders that want them.
#[tokio::test]
async fn a_holder_that_does_not_wait_for_its_loss_sends_the_same_commands_as_without_hints() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    locks.lock("first").expire(LONG).try_acquire().await.unwrap().release().await.unwrap();
    probe.reset_calls().await;
    for _ in 0..10 {
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        guard.extend(LONG).await.unwrap();
        guard.release().await.unwrap();
    }
    let mut calls = probe.calls().await;
    calls.remove("config|resetstat");
    calls.remove("config");
    let mut calls: Vec<_> = calls.into_iter().collect();
    calls.sort();
    let expected =
        [("del", 10), ("evalsha", 20), ("get", 20), ("pttl", 10), ("publish", 10), ("set", 10)];
    let expected: Vec<_> =
        expected.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    let without_extension = |calls: &[(String, u64)]| {
        calls.iter().filter(|(name, _)| name != "pexpire").cloned().collect::<Vec<_>>()
    };
    assert_eq!(without_extension(&calls), expected);
}

/// The key of a shared lock changes with each reader.
#[tokio::test]
async fn readers_that_wait_for_their_loss_send_no_further_commands() {
    let (servers, locks) = start(1).await;
    let other = connect(servers.urls()).await;
    let mut probe = servers[0].probe().await;
    let mut readers = Vec::new();
    for locks in [&locks, &other] {
        for _ in 0..64 {
            let request = locks.lock(KEY).expire(LONG).shared(true);
            readers.push(request.try_acquire().await.unwrap());
        }
    }
    probe.reset_calls().await;
    let lost: Vec<_> = readers.iter().map(|reader| reader.lost()).collect();
    let later = locks.lock(KEY).expire(LONG).shared(true).try_acquire().await.unwrap();
    later.extend(2 * LONG).await.unwrap();
    let calls = probe.calls().await;
    assert!(!calls.keys().any(|name| name.starts_with("client")), "{calls:?}");
    assert!(!calls.contains_key("get"), "{calls:?}");
    drop((lost, later));
}

/// After a downgrade, the key changes with each reader.
#[tokio::test]
async fn a_downgrade_ends_the_hints() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let _lost = guard.lost();
    tracked(&servers, 1).await;
    guard.downgrade().await.unwrap();
    probe.reset_calls().await;
    let reader = locks.lock(KEY).expire(LONG).shared(true).try_acquire().await.unwrap();
    guard.extend(2 * LONG).await.unwrap();
    reader.release().await.unwrap();
    let calls = probe.calls().await;
    assert!(!calls.keys().any(|name| name.starts_with("client")), "{calls:?}");
    assert!(guard.is_valid());
}

/// The connection of the holder breaks, and the lock is deleted before or after the next one is made.
#[tokio::test]
async fn the_hints_go_on_over_a_new_connection() {
    for is_deleted_meanwhile in [true, false] {
        let (servers, locks) = start(1).await;
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        reset(&servers).await;
        let lost = guard.lost();
        tracked(&servers, 1).await;
        let mut probe = servers[0].probe().await;
        if is_deleted_meanwhile {
            let script = "redis.call('DEL', KEYS[1])";
            // The holder is not connected when its key is deleted.
            probe.disconnect_others().await;
            probe.command::<()>(["EVAL", script, "1", KEY]).await;
        } else {
            probe.disconnect_others().await;
            tracked(&servers, 2).await;
            Cause::Deleted.happen(&servers).await;
        }
        drop(lost);
        is_lost(&guard, "after a reconnect").await;
    }
}

#[tokio::test]
async fn a_holder_learns_at_once_that_a_restarted_server_has_forgotten_its_lock() {
    let mut server = RedisServer::start().await;
    let locks = connect([server.url()]).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let lost = guard.lost();
    server.kill();
    server.restart().await;
    drop(lost);
    is_lost(&guard, "after a restart").await;
}

/// No hint arrives from a frozen server. The holder knows by its clock that its lease ends, before the server can end it.
#[tokio::test]
async fn a_holder_whose_renewals_are_frozen_knows_it_before_the_servers_end_its_lease() {
    const LEASE: Duration = Duration::from_secs(3);
    for count in [1, 5] {
        let mut servers = Servers::start(count).await;
        let locks = builder(servers.urls()).node_timeout(LEASE / 6).connect().await.unwrap();
        let guard = locks.lock(KEY).expire(LEASE).renew(true).try_acquire().await.unwrap();
        let lost = guard.lost();
        servers.iter_mut().for_each(RedisServer::freeze);
        lost.await;
        assert!(!guard.is_valid());
        servers.iter_mut().for_each(RedisServer::thaw);
        // Whether a renewal that was on its way prolongs the key or not: nobody else had the lock before the loss.
        let other = connect(servers.urls()).await;
        let next = other.lock(KEY).expire(LEASE).wait_time(LONG).acquire().await.unwrap();
        assert!(!guard.is_valid() && next.is_valid());
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_set_of_keys_is_lost_with_each_of_them() {
    for deleted in ["a", "b", "c"] {
        let (servers, locks) = start(1).await;
        let guard = locks.lock_all(["a", "b", "c"]).expire(LONG).try_acquire().await.unwrap();
        reset(&servers).await;
        let lost = guard.lost();
        tracked(&servers, 3).await;
        servers[0].probe().await.command::<()>(["DEL", deleted]).await;
        drop(lost);
        is_lost(&guard, deleted).await;
    }
}

/// The hint belongs to a lock that was released, or to the lock of another manager of the process.
#[tokio::test]
async fn a_hint_for_another_holder_does_nothing() {
    let (servers, locks) = start(1).await;
    let other = connect(servers.urls()).await;
    let first = locks.lock(KEY).expire(LONG).min_hold(LONG).try_acquire().await.unwrap();
    reset(&servers).await;
    let first_handle = first.handle();
    let _lost = first_handle.lost();
    tracked(&servers, 1).await;
    first.release().await.unwrap();
    // The key of the released lock stays, and is tracked no more.
    Cause::Deleted.happen(&servers).await;
    let second = other.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let _other_lost = second.lost();
    tracked(&servers, 2).await;
    // A hint for the first manager, whose lock has ended.
    let third = locks.lock("other").expire(LONG).try_acquire().await.unwrap();
    let _third_lost = third.lost();
    tracked(&servers, 3).await;
    assert!(second.is_valid() && third.is_valid());
    Cause::Deleted.happen(&servers).await;
    is_lost(&second, "the lock of the other manager").await;
    assert!(third.is_valid());
}

/// Each manager has hints for its own locks, and all of them at once.
#[tokio::test]
async fn ten_thousand_locks_that_are_flushed_at_once_are_lost() {
    const COUNT: usize = 10_000;
    let (servers, locks) = start(1).await;
    let acquire = (0..COUNT).map(|number| {
        let request = locks.lock(format!("order:{number}")).expire(LONG);
        async move { request.try_acquire().await.unwrap() }
    });
    let guards = join_all(acquire).await;
    reset(&servers).await;
    let lost: Vec<_> = guards.iter().map(|guard| guard.lost()).collect();
    tracked(&servers, COUNT as u64).await;
    Cause::Flushed.happen(&servers).await;
    tokio::time::timeout(6 * SOON, join_all(lost)).await.expect("all locks are lost");
}

/// A server that does not track keys, or does not permit it, still tells the holder of a break.
#[tokio::test]
async fn without_tracking_a_break_is_published_and_one_line_says_why() {
    for denied in ["-client|tracking", "-client|caching"] {
        let logs = Logs::collect();
        let server = RedisServer::start().await;
        let mut probe = server.probe().await;
        probe.command::<()>(["ACL", "SETUSER", "default", "-client", denied, "+client|kill"]).await;
        let (locks, ops) = (connect([server.url()]).await, connect([server.url()]).await);
        let guards = [KEY, "other"].map(|key| locks.lock(key).expire(LONG).try_acquire());
        let [guard, other] = guards.map(|guard| async { guard.await.unwrap() });
        let (guard, other) = tokio::join!(guard, other);
        let lost = (guard.lost(), other.lost());
        eventually("the holder listens to breaks", SOON, async || {
            let listeners: (String, u64) =
                probe.command(["PUBSUB", "NUMSUB", "redlock:broken"]).await;
            (listeners.1 == 1).then_some(())
        })
        .await;
        break_all(&ops).await;
        drop(lost);
        is_lost(&guard, denied).await;
        assert!(other.is_valid());
        let lines = logs.lines();
        let why = lines.iter().filter(|line| line.contains("does not track keys"));
        assert_eq!(why.count(), 1, "{denied}: {lines:?}");
        let warnings = lines.iter().filter(|line| line.trim_start().starts_with("WARN"));
        assert!(!warnings.clone().any(|line| line.contains("NOPERM")), "{lines:?}");
        drop((guard, other));
        eventually("nobody listens any more", SOON, async || {
            let listeners: (String, u64) =
                probe.command(["PUBSUB", "NUMSUB", "redlock:broken"]).await;
            (listeners.1 == 0).then_some(())
        })
        .await;
    }
}

/// Waits until the waiter has looked at the lock as one of another library.
async fn until_it_waits(servers: &Servers, count: u64) {
    tracked(servers, count).await;
}

/// Neither a DEL by hand nor redis-py publishes the release.
#[tokio::test]
async fn a_waiter_behind_a_lock_of_another_library_is_woken_by_its_end() {
    for count in [1, 3] {
        let (servers, locks) = start(count).await;
        for is_shared in [false, true] {
            for server in servers.iter() {
                let mut probe = server.probe().await;
                probe.command::<()>(["SET", KEY, "another", "NX", "PX", "300000"]).await;
            }
            reset(&servers).await;
            let request = locks.lock(KEY).expire(LONG).shared(is_shared).wait_time(LONG);
            let waiting = tokio::spawn(request.acquire());
            until_it_waits(&servers, 1).await;
            Cause::Deleted.happen(&servers).await;
            let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
            guard.release().await.unwrap();
        }
    }
}

/// The next holder is one of another library, too.
#[tokio::test]
async fn a_waiter_stays_behind_one_lock_of_another_library_after_another() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    probe.command::<()>(["SET", KEY, "first", "NX", "PX", "300000"]).await;
    reset(&servers).await;
    let waiting = tokio::spawn(locks.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    for (reads, next) in [(1, "second"), (2, "third")] {
        until_it_waits(&servers, reads).await;
        // No other caller gets the lock between the two commands.
        let script = "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1], 'PX', 300000)";
        probe.command::<()>(["EVAL", script, "1", KEY, next]).await;
    }
    until_it_waits(&servers, 3).await;
    Cause::Deleted.happen(&servers).await;
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
}

/// A holder with a label publishes its release, and each of its renewals would wake all waiters.
#[tokio::test]
async fn no_waiter_tracks_the_lock_of_a_labelled_holder() {
    let servers = Servers::start(1).await;
    let labelled = |label: &'static str| builder(servers.urls()).owner_label(label).connect();
    let (shop, ops) = (labelled("shop").await.unwrap(), labelled("ops").await.unwrap());
    let guard = shop.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    reset(&servers).await;
    let waiting = tokio::spawn(ops.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    let mut probe = servers[0].probe().await;
    eventually("the waiter has asked twice", SOON, async || {
        (probe.calls().await.get("pttl").copied() >= Some(2)).then_some(())
    })
    .await;
    guard.extend(2 * LONG).await.unwrap();
    let calls = probe.calls().await;
    assert!(!calls.keys().any(|name| name.starts_with("client")), "{calls:?}");
    guard.release().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
}

/// Returns a message of a server that says that this key has changed, or any key.
fn invalidation(key: Option<&str>) -> String {
    let names = key.map(|key| format!("*1\r\n${}\r\n{key}\r\n", key.len()));
    format!(">2\r\n$10\r\ninvalidate\r\n{}", names.unwrap_or_else(|| "_\r\n".to_owned()))
}

/// The server says without end that the key of the lock, another key, or any key has changed. Neither costs a lock, and the
/// process does not answer each message by a read.
#[tokio::test]
async fn invalidations_without_end_cost_no_lock() {
    const MESSAGES: usize = 10_000;
    for key in [Some(KEY), Some("another"), None, Some("not\u{fffd}watched")] {
        let real = RedisServer::start().await;
        let server = PlayedServer::before(&real).await;
        let locks = builder([server.url()]).expire(LONG).connect().await.unwrap();
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let _lost = guard.lost();
        eventually("the key is read", SOON, async || {
            (server.commands(&["GET", KEY]).len() == 1).then_some(())
        })
        .await;
        let (flood, is_sent) =
            (invalidation(key).repeat(MESSAGES), Arc::new(AtomicBool::new(false)));
        let is_first = Arc::clone(&is_sent);
        server.play(move |command| {
            if command.is(&["SET"]) && !is_first.swap(true, Ordering::SeqCst) {
                Play::Precede(flood.clone())
            } else {
                Play::Pass
            }
        });
        // The reply follows all messages.
        let other = locks.lock("other").expire(LONG).try_acquire().await.unwrap();
        assert!(is_sent.load(Ordering::SeqCst));
        guard.extend(2 * LONG).await.unwrap();
        assert!(guard.is_valid() && other.is_valid(), "{key:?}");
        let reads = server.commands(&["GET", KEY]).len();
        assert!(reads <= 2 + 16, "{key:?}: {reads} reads");
        guard.release().await.unwrap();
        other.release().await.unwrap();
        assert_eq!(server.accepted(), 1, "{key:?}");
    }
}

/// A server that lies about the value makes the manager ask all nodes, whose votes decide, and not without end.
#[tokio::test]
async fn a_server_that_lies_about_the_value_costs_no_lock() {
    let real = RedisServer::start().await;
    let server = PlayedServer::before(&real).await;
    let locks = builder([server.url()]).expire(LONG).connect().await.unwrap();
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let is_gone = AtomicBool::new(false);
    server.play(move |command| {
        let lies = command.is(&["GET", KEY]) && is_gone.fetch_xor(true, Ordering::SeqCst);
        if lies { Play::Reply("_\r\n".to_owned()) } else { Play::Pass }
    });
    let before = server.commands(&["EVALSHA"]).len();
    let _lost = guard.lost();
    for _ in 0..100 {
        guard.extend(2 * LONG).await.unwrap();
    }
    assert!(guard.is_valid());
    let asked = server.commands(&["EVALSHA"]).len() - before;
    assert!(asked <= 100 + 16, "{asked} extensions");
}

/// The message comes between an extension and its reply, and belongs to a change before it.
#[tokio::test]
async fn an_invalidation_between_a_command_and_its_reply_costs_no_lock() {
    for word in ["EVALSHA", "GET", "CLIENT"] {
        let real = RedisServer::start().await;
        let server = PlayedServer::before(&real).await;
        let locks = builder([server.url()]).expire(LONG).connect().await.unwrap();
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let is_sent = AtomicBool::new(false);
        server.play(move |command| {
            if command.is(&[word]) && !is_sent.swap(true, Ordering::SeqCst) {
                Play::Precede(invalidation(Some(KEY)))
            } else {
                Play::Pass
            }
        });
        let _lost = guard.lost();
        guard.extend(2 * LONG).await.unwrap();
        guard.extend(3 * LONG).await.unwrap();
        assert!(guard.is_valid(), "{word}");
        guard.release().await.unwrap();
    }
}

/// A shutdown releases nothing that a hint could bring back.
#[tokio::test]
async fn a_flush_during_a_shutdown_leaves_no_key() {
    let (servers, locks) = start(3).await;
    for _ in 0..10 {
        let acquire = (0..100).map(|number| {
            let request = locks.lock(format!("order:{number}")).expire(LONG);
            async move { request.try_acquire().await.unwrap() }
        });
        let guards = join_all(acquire).await;
        drop(guards.iter().map(|guard| guard.lost()).collect::<Vec<_>>());
        let mut probes = Vec::new();
        for server in &servers[..2] {
            probes.push(server.probe().await);
        }
        let flush = join_all(probes.iter_mut().map(|probe| probe.command::<()>(["FLUSHALL"])));
        tokio::join!(flush, async { drop(guards) });
        super::no_key_is_left(&servers).await;
    }
    locks.shutdown().await;
    super::no_key_is_left(&servers).await;
}
