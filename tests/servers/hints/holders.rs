//! Holders that wait for their loss: which commands they send, what is no loss, and how the hints go on.

use futures_util::future::join_all;
use redlock_tests::{Logs, RedisServer, connect, eventually};

use super::super::no_key_is_left;
use super::{Cause, KEY, LONG, SOON, break_all, is_lost, reset, start, tracked};

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
    // The clock of the server is read now and then.
    calls.remove("time");
    let mut calls: Vec<_> = calls.into_iter().collect();
    calls.sort();
    let expected = if probe.has_command("DELIFEQ").await {
        [("delifeq", 10), ("evalsha", 10), ("get", 10), ("pttl", 10), ("publish", 10), ("set", 10)]
    } else {
        [("del", 10), ("evalsha", 20), ("get", 20), ("pttl", 10), ("publish", 10), ("set", 10)]
    };
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
        no_key_is_left(&servers).await;
    }
    locks.shutdown().await;
    no_key_is_left(&servers).await;
}
