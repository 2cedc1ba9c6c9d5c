//! Fencing numbers on real servers, whose counters and replies a test can control.

use std::time::Duration;

use redlock_core::{Dialect, FencingToken, LockError, LockGuard, LockManager};
use redlock_tests::{Nodes, RedisServer, Servers, builder, connect, eventually};

/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(60);
const KEY: &str = "order:42";
/// The fencing counter for the slot of `KEY`.
const COUNTER: &str = "redlock:fencing:{633}";
/// Above the wall clock in microseconds until the year 2112.
const AHEAD: i64 = 1 << 52;

async fn acquire(locks: &LockManager) -> LockGuard {
    locks.lock(KEY).expire(LONG).wait_time(LONG).fenced(true).acquire().await.unwrap()
}

/// Acquires and releases the lock once. Returns its fencing token.
async fn turn(locks: &LockManager) -> FencingToken {
    let guard = acquire(locks).await;
    let token = guard.fencing_token().unwrap();
    guard.release().await.unwrap();
    token
}

async fn set_counters(servers: &Servers, counts: &[i64]) {
    for (server, count) in servers.iter().zip(counts) {
        let count = count.to_string();
        let _: String = server.probe().await.command(["SET", COUNTER, &count]).await;
    }
}

async fn counter(server: &RedisServer) -> i64 {
    let count = server.probe().await.get(COUNTER).await.unwrap();
    String::from_utf8(count).unwrap().parse().unwrap()
}

/// Two managers, each with ten callers, on each kind of nodes.
#[tokio::test]
async fn each_holder_gets_a_greater_number_than_the_previous_one() {
    let kinds = [
        Nodes::memory(1),
        Nodes::memory(5),
        Nodes::redis(1).await,
        Nodes::redis(3).await,
        Nodes::sentinel(1).await,
        Nodes::cluster().await,
        Nodes::redis(1).await.redisson(),
        Nodes::redis(3).await.redisson(),
    ];
    for nodes in kinds {
        let processes = [nodes.manager().await, nodes.manager().await];
        let turns = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let callers: Vec<_> = (0..20)
            .map(|number| {
                let (locks, turns) = (processes[number % 2].clone(), turns.clone());
                tokio::spawn(async move {
                    for _ in 0..5 {
                        let guard = acquire(&locks).await;
                        turns.lock().unwrap().push(guard.fencing_token().unwrap());
                        tokio::task::yield_now().await;
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        let turns = turns.lock().unwrap();
        assert_eq!(turns.len(), 100);
        let grow = |one: &FencingToken, next: &FencingToken| one.number() < next.number();
        assert!(turns.is_sorted_by(grow), "{nodes:?}: {turns:?}");
    }
}

/// The maximum of the counters alone is not enough: two of three servers grant the lock to the first holder,
/// and another two, whose counters are behind, grant it to the second.
#[tokio::test]
async fn numbers_grow_across_different_majorities() {
    let mut servers = Servers::start(3).await;
    let locks = connect(servers.urls()).await;
    for frozen in [[0, 2], [2, 0], [1, 2], [0, 1]] {
        set_counters(&servers, &[AHEAD, AHEAD, AHEAD + 1000]).await;
        let mut turns = Vec::new();
        for frozen in frozen {
            servers[frozen].freeze();
            turns.push(turn(&locks).await);
            servers[frozen].thaw();
            eventually("the lock is released", SOON, async || {
                let keys = servers.keys().await;
                keys.iter().all(|key| key.contains("redlock:fencing")).then_some(())
            })
            .await;
        }
        assert!(turns[0] < turns[1], "{turns:?} without {frozen:?}");
        assert!(turns[0].number() > AHEAD, "the counters were not used");
    }
}

/// A restart without data loses the counter, but not the server's clock.
#[tokio::test]
async fn a_server_without_its_counter_continues_from_its_clock() {
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let mut servers = Servers::start(1).await;
        let locks = connect(servers.urls()).await;
        let request = || locks.lock(KEY).expire(LONG).dialect(dialect).fenced(true);
        let guard = request().try_acquire().await.unwrap();
        let before = guard.fencing_token().unwrap();
        guard.release().await.unwrap();
        servers[0].restart().await;
        let after = eventually("the server grants the lock again", SOON, async || {
            request().try_acquire().await.ok()
        })
        .await;
        assert!(after.fencing_token().unwrap().number() > before.number(), "{dialect:?}");
    }
}

/// The node with the highest counter replies late. The holder gets its number from the other two nodes, and
/// the late node must not lower its counter when that number is confirmed.
#[tokio::test]
async fn a_confirmation_never_lowers_a_counter() {
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let mut servers = Servers::start(3).await;
        let locks = builder(servers.urls()).dialect(dialect).connect().await.unwrap();
        set_counters(&servers, &[0, 0, AHEAD]).await;
        servers[2].probe().await.reset_calls().await;
        servers[2].freeze();
        let guard = acquire(&locks).await;
        assert!(guard.fencing_token().unwrap().number() < AHEAD, "{dialect:?}");
        servers[2].thaw();
        let mut probe = servers[2].probe().await;
        eventually("the number is confirmed on the late node", SOON, async || {
            (probe.calls().await.get("evalsha") == Some(&2)).then_some(())
        })
        .await;
        assert_eq!(counter(&servers[2]).await, AHEAD + 1, "{dialect:?}");
        guard.release().await.unwrap();
    }
}

/// Counters never expire, so one per lock would fill the server. The locks of a slot share a counter, and a
/// prefix with a hash tag puts all its locks into one slot.
#[tokio::test]
async fn locks_of_one_slot_share_a_counter() {
    type Key = fn(usize) -> String;
    let tagged = |number| format!("{{order}}:{number}");
    let plain = |number| format!("order:{number}");
    let kinds: [(&str, Key, usize); 3] =
        [("shop:", tagged, 1), ("{shop}:", plain, 1), ("shop:", plain, 10)];
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        for (prefix, key, expected) in kinds {
            let servers = Servers::start(1).await;
            let builder = builder(servers.urls()).prefix(prefix).dialect(dialect);
            let locks = builder.connect().await.unwrap();
            for number in 0..10 {
                let guard = locks.lock(key(number)).fenced(true).try_acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            let counters = servers[0].probe().await.keys().await;
            assert!(counters.iter().all(|key| key.contains("redlock:fencing")), "{counters:?}");
            assert_eq!(counters.len(), expected, "{prefix}");
        }
    }
}

/// One server returns the number with the grant. With several, the number is then confirmed on all of them.
#[tokio::test]
async fn a_fencing_number_costs_a_second_command_only_on_several_servers() {
    for (nodes, scripts) in [(1, 1), (3, 2)] {
        let servers = Servers::start(nodes).await;
        let locks = connect(servers.urls()).await;
        for server in servers.iter() {
            server.probe().await.reset_calls().await;
        }
        let guard = acquire(&locks).await;
        let number = guard.fencing_token().unwrap().number();
        for server in servers.iter() {
            let counted = eventually("the counter has the number", SOON, async || {
                (counter(server).await >= number).then_some(())
            });
            counted.await;
            let calls = server.probe().await.calls().await;
            assert_eq!(calls.get("evalsha"), Some(&scripts), "{calls:?}");
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn scripts_are_loaded_again_after_script_flush() {
    let servers = Servers::start(3).await;
    let locks = connect(servers.urls()).await;
    let before = turn(&locks).await;
    for server in servers.iter() {
        let _: String = server.probe().await.command(["SCRIPT", "FLUSH"]).await;
    }
    assert!(turn(&locks).await > before);
}

/// The counter's key may hold another value, for example because a caller locked that name by mistake, or a
/// number that cannot grow. The acquisition fails, no lock stays, and the counter is unchanged.
#[tokio::test]
async fn an_unusable_counter_is_an_error_and_leaves_no_lock() {
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let servers = Servers::start(1).await;
        let locks = connect(servers.urls()).await;
        let mut probe = servers[0].probe().await;
        for count in [
            "a token",
            "",
            "inf",
            "nan",
            "-nan",
            "1e400",
            "9007199254740991",
            "9223372036854775807",
        ] {
            let _: String = probe.command(["SET", COUNTER, count]).await;
            let refused = locks.lock(KEY).dialect(dialect).fenced(true).try_acquire().await;
            let Err(refused @ LockError::Unavailable { .. }) = refused else {
                panic!("{count}: {refused:?}")
            };
            let message = refused.diagnostics().to_string();
            assert!(
                message.contains("the fencing counter is not a number below 2^53"),
                "{message}"
            );
            assert_eq!(probe.keys().await, [COUNTER]);
            assert_eq!(probe.get(COUNTER).await.unwrap(), count.as_bytes());
        }
        let _: i64 = probe.command(["DEL", COUNTER]).await;
        let _: i64 = probe.command(["HSET", COUNTER, "a", "1"]).await;
        let refused =
            locks.lock(KEY).dialect(dialect).fenced(true).try_acquire().await.unwrap_err();
        let diagnostics = refused.diagnostics().to_string();
        assert!(diagnostics.contains("WRONGTYPE"), "{diagnostics}");
        assert_eq!(probe.keys().await, [COUNTER]);
    }
}

/// Confirmations sent to a frozen node would pile up there: each one is a task that waits for its reply.
#[tokio::test]
async fn a_frozen_node_is_not_asked_to_confirm() {
    const TIMEOUT: Duration = Duration::from_millis(500);
    let mut servers = Servers::start(3).await;
    let locks = builder(servers.urls()).node_timeout(TIMEOUT).connect().await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("twenty turns leave no tasks", SOON * 3, async || {
        servers[2].freeze();
        turn(&locks).await;
        // From then on, the node counts as silent. No task waits any more for a reply to an earlier confirmation.
        tokio::time::sleep(TIMEOUT * 2).await;
        let before = tasks();
        for _ in 0..20 {
            turn(&locks).await;
        }
        let after = tasks();
        servers[2].thaw();
        (after <= before + 5).then_some(())
    })
    .await;
}
