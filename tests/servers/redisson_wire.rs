//! The Redisson dialect as the servers see it, tested without Redisson.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use redlock_core::{Dialect, ForeignKind, LockError, LockManager, LockRequest, Vote};
use redlock_tests::{Moment, Monitor, Probe, Servers, drop_after, eventually};

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";
const CHANNEL: &str = "redisson_lock__channel:{order:42}";

/// Starts servers and a manager in the plain dialect. The requests select the Redisson dialect.
async fn start(count: usize) -> (Servers, LockManager) {
    let servers = Servers::start(count).await;
    let builder = LockManager::builder().urls(servers.urls());
    let builder = builder.node_timeout(Duration::from_secs(2)).connect_timeout(SOON);
    let locks = builder.connect().await.unwrap();
    (servers, locks)
}

fn redisson(locks: &LockManager, key: &str) -> LockRequest {
    locks.lock(key).expire(LONG).dialect(Dialect::Redisson)
}

async fn owners(probe: &mut Probe, key: &str) -> HashMap<String, String> {
    probe.command(["HGETALL", key]).await
}

fn foreign_kind(error: &LockError) -> Option<ForeignKind> {
    let LockError::ForeignKey { votes, .. } = error else { return None };
    votes.iter().find_map(|(_, vote)| match vote {
        Some(Vote::Foreign { found, .. }) => Some(*found),
        _ => None,
    })
}

#[tokio::test]
async fn a_lock_is_a_hash_that_maps_its_owner_to_one() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let guard = redisson(&locks, KEY).try_acquire().await.unwrap();
        let owners = owners(&mut probe, KEY).await;
        let (owner, count) = owners.iter().next().unwrap();
        assert_eq!((owners.len(), count.as_str()), (1, "1"));
        let (uuid, thread) = owner.split_once(':').unwrap();
        assert_eq!((uuid.len(), thread.parse()), (36, Ok(1_u64)), "{owner}");
        seen.push(owner.clone());
        let left = probe.time_to_live(KEY).await.unwrap();
        assert!(left <= LONG && left + SOON > LONG, "{left:?}");
        guard.release().await.unwrap();
        assert!(probe.keys().await.is_empty());
    }
    // Redisson would take a reused token for a re-entrant acquisition (a fresh token for every attempt).
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_release_is_published_on_the_channel_of_redisson() {
    let (servers, locks) = start(1).await;
    let mut monitor = Monitor::connect(&servers[0].url()).await.unwrap();
    redisson(&locks, KEY).try_acquire().await.unwrap().release().await.unwrap();
    let early = redisson(&locks, KEY).min_hold(LONG).try_acquire().await.unwrap();
    early.release().await.unwrap();
    servers[0].probe().await.command::<()>(["SET", "the end", ""]).await;
    let lines = monitor.until(|line| line.contains("\"the end\"")).await;
    let announced = format!(r#""PUBLISH" "{CHANNEL}" "0""#);
    let count = lines.iter().filter(|line| line.contains(&announced)).count();
    assert_eq!(count, 2, "{lines:#?}");
}

#[tokio::test]
async fn every_operation_is_one_script() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let stranger = LockManager::connect(servers.urls()).await.unwrap();
    probe.reset_calls().await;
    for _ in 0..10 {
        let guard = redisson(&locks, KEY).try_acquire().await.unwrap();
        assert!(redisson(&stranger, KEY).try_acquire().await.unwrap_err().is_contended());
        guard.extend(LONG * 2).await.unwrap();
        guard.release().await.unwrap();
    }
    let calls = probe.calls().await;
    let count = |name| calls.get(name).copied().unwrap_or_default();
    assert_eq!((count("evalsha"), count("set"), count("get")), (40, 0, 0), "{calls:?}");
}

/// The test unlocks as Redisson does, by `DEL` and `PUBLISH`, while a caller of this library waits.
#[tokio::test]
async fn an_unlock_message_of_redisson_wakes_the_waiter() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let owner = "381e52be-fd77-4a79-9de6-cc885910755d:77";
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        probe.command::<()>(["HSET", KEY, owner, "1"]).await;
        probe.command::<()>(["PEXPIRE", KEY, "300000"]).await;
        probe.reset_calls().await;
        let waiting = tokio::spawn(redisson(&locks, KEY).wait_time(LONG).acquire());
        // The waiter was refused once more after it subscribed, so now only the message wakes it.
        eventually("the waiter sleeps", SOON, async || {
            let listeners: (String, u64) = probe.command(["PUBSUB", "NUMSUB", CHANNEL]).await;
            let refusals = probe.calls().await.get("pttl").copied();
            (listeners.1 == 1 && refusals >= Some(2)).then_some(())
        })
        .await;
        let unlocked = std::time::Instant::now();
        probe.command::<()>(["DEL", KEY]).await;
        probe.command::<()>(["PUBLISH", CHANNEL, "0"]).await;
        let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
        fastest = fastest.min(unlocked.elapsed());
        guard.release().await.unwrap();
    }
    // A waiter that is not woken polls after 250 ms at the earliest.
    assert!(fastest < Duration::from_millis(125), "{fastest:?}");
}

/// The caller gets an error. It does not wait, because the other dialect's release would not wake it.
#[tokio::test]
async fn a_lock_of_the_other_dialect_is_foreign() {
    let (_servers, locks) = start(3).await;
    let plain = || locks.lock(KEY).expire(LONG).wait_time(LONG);
    let guard = redisson(&locks, KEY).try_acquire().await.unwrap();
    let error = tokio::time::timeout(SOON, plain().acquire()).await.unwrap().unwrap_err();
    assert_eq!(foreign_kind(&error), Some(ForeignKind::WrongType), "{error}");
    let diagnostics = error.diagnostics().to_string();
    assert!(diagnostics.contains("perhaps a lock in another dialect"), "{diagnostics}");
    assert!(guard.is_valid());
    guard.release().await.unwrap();

    let guard = plain().acquire().await.unwrap();
    let waiting = redisson(&locks, KEY).wait_time(LONG).acquire();
    let error = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap_err();
    assert_eq!(foreign_kind(&error), Some(ForeignKind::WrongType), "{error}");
    guard.extend(LONG * 2).await.unwrap();
    guard.release().await.unwrap();
    redisson(&locks, KEY).try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_foreign_key_is_distinguished_from_a_held_lock() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let cases: [(&[&str], ForeignKind); 3] = [
        (&["HSET", KEY, "field", "1"], ForeignKind::NoTimeToLive),
        (&["RPUSH", KEY, "1"], ForeignKind::WrongType),
        (&["SET", KEY, "1"], ForeignKind::WrongType),
    ];
    for (command, expected) in cases {
        probe.command::<()>(["DEL", KEY]).await;
        probe.command::<redis::Value>(command).await;
        let error = redisson(&locks, KEY).try_acquire().await.unwrap_err();
        assert_eq!(foreign_kind(&error), Some(expected), "{error}");
        assert_eq!(probe.keys().await, [KEY], "the foreign key was removed");
    }
}

/// Only the owner releases. `forceUnlock` of Redisson is a `DEL`, after which another owner can lock.
#[tokio::test]
async fn a_lock_that_another_owner_took_over_is_not_changed() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let guard = redisson(&locks, KEY).try_acquire().await.unwrap();
    probe.command::<()>(["DEL", KEY]).await;
    probe.command::<()>(["HSET", KEY, "another:1", "1"]).await;
    probe.command::<()>(["PEXPIRE", KEY, "60000"]).await;
    assert!(guard.extend(LONG).await.is_err());
    assert!(!guard.is_valid());
    guard.release().await.unwrap_err();
    assert_eq!(owners(&mut probe, KEY).await.len(), 1);
    assert!(probe.time_to_live(KEY).await.unwrap() <= Duration::from_secs(60));
}

#[tokio::test]
async fn an_extension_restores_the_lock_on_a_node_that_lost_it() {
    let (servers, locks) = start(3).await;
    let guard = redisson(&locks, KEY).try_acquire().await.unwrap();
    for server in servers.iter() {
        let mut probe = server.probe().await;
        eventually("every node has the lock", SOON, async || {
            (!owners(&mut probe, KEY).await.is_empty()).then_some(())
        })
        .await;
    }
    let held = owners(&mut servers[1].probe().await, KEY).await;
    let mut forgetful = servers[0].probe().await;
    forgetful.command::<()>(["FLUSHALL"]).await;
    guard.extend(LONG).await.unwrap();
    eventually("the lock is restored", SOON, async || {
        (owners(&mut forgetful, KEY).await == held).then_some(())
    })
    .await;
    guard.release().await.unwrap();
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

#[tokio::test]
async fn a_lock_released_before_its_min_hold_expires_by_itself() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let min_hold = Duration::from_secs(100);
    let guard = redisson(&locks, KEY).min_hold(min_hold).try_acquire().await.unwrap();
    let held = owners(&mut probe, KEY).await;
    guard.release().await.unwrap();
    assert_eq!(owners(&mut probe, KEY).await, held);
    let left = probe.time_to_live(KEY).await.unwrap();
    assert!(left <= min_hold && left + SOON > min_hold, "{left:?}");
}

/// A server forgets its scripts when it restarts, or by an administrator's `SCRIPT FLUSH`.
#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let (servers, locks) = start(1).await;
    let stranger = LockManager::connect(servers.urls()).await.unwrap();
    let mut probe = servers[0].probe().await;
    let mut flush = async || probe.command::<()>(["SCRIPT", "FLUSH"]).await;
    for min_hold in [Duration::ZERO, SOON] {
        flush().await;
        let guard = redisson(&locks, KEY).min_hold(min_hold).try_acquire().await.unwrap();
        flush().await;
        guard.extend(LONG * 2).await.unwrap();
        flush().await;
        let error = redisson(&stranger, KEY).try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Contended { remaining: Some(_), .. }), "{error}");
        flush().await;
        guard.release().await.unwrap();
    }
}

/// The server has forgotten the script of the acquisition but knows that of the release. The clean-up must
/// not overtake the acquisition (an abandoned attempt leaves nothing behind).
#[tokio::test]
async fn an_acquisition_dropped_while_its_script_is_sent_again_leaves_nothing() {
    let (servers, locks) = start(1).await;
    let other = LockManager::connect(servers.urls()).await.unwrap();
    let mut probe = servers[0].probe().await;
    for moment in [Moment::AtOnce, Moment::WhenWoken] {
        for polls in 0..10 {
            let held = redisson(&other, "other").try_acquire().await.unwrap();
            probe.command::<()>(["SCRIPT", "FLUSH"]).await;
            held.release().await.unwrap();
            drop(drop_after(polls, moment, redisson(&locks, KEY).try_acquire()).await);
            // These locks use the same connection. When they are done, so are the commands before them and
            // the commands that follow on their replies.
            for _ in 0..3 {
                locks.lock("later").try_acquire().await.unwrap().release().await.unwrap();
            }
            eventually(&format!("no lock is left, {polls} {moment:?}"), SOON, async || {
                probe.keys().await.is_empty().then_some(())
            })
            .await;
        }
    }
}

/// Two managers in one process do not know each other's locks: only the holder's own manager refuses without
/// a round trip.
#[tokio::test]
async fn a_request_overrides_the_dialect_of_its_manager() {
    let (servers, locks) = start(1).await;
    let builder = LockManager::builder().urls(servers.urls()).dialect(Dialect::Redisson);
    let java_like = builder.connect().await.unwrap();
    let mut probe = servers[0].probe().await;
    let one = java_like.lock("hash").try_acquire().await.unwrap();
    let two = java_like.lock("string").dialect(Dialect::Plain).try_acquire().await.unwrap();
    let kind: String = probe.command(["TYPE", "hash"]).await;
    assert_eq!(kind, "hash");
    let kind: String = probe.command(["TYPE", "string"]).await;
    assert_eq!(kind, "string");
    assert!(redisson(&locks, "hash").try_acquire().await.unwrap_err().is_contended());
    assert!(locks.lock("string").try_acquire().await.unwrap_err().is_contended());
    let refused = redisson(&java_like, "hash").try_acquire().now_or_never();
    assert!(refused.expect("without a round trip").unwrap_err().is_contended());
    one.release().await.unwrap();
    two.release().await.unwrap();
}
