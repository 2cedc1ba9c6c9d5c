//! Servers that write down what they are told, and lose the end of it.
//!
//! A killed server loses nothing: what it has answered is with the kernel. After a power cut it comes
//! back as it was some time before, with some of its locks, with locks that were released since, with
//! leases that were longer. To imitate one, the file is cut off.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use redlock_core::{
    ExtendError, LockError, LockGuard, LockManager, LockManagerBuilder, NodeError, ReleaseError,
    Vote,
};
use redlock_tests::{AppendOnlyFile, RedisOptions, RedisServer, Servers, eventually};

/// Longer than any test: what is gone before was forgotten or released.
const LONG: Duration = Duration::from_secs(300);
/// The longest lease where the end of one is waited for. Servers tell their uptime in whole seconds.
const LEASE: Duration = Duration::from_secs(4);
/// A lease that is extended to the longest.
const SHORTER: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(20);
const KEY: &str = "order:42";

/// With `always`, a power cut takes nothing that was answered. With `no`, the kernel writes when it
/// likes, so that there is much to take.
fn writing(appendfsync: &str) -> RedisOptions {
    let options = RedisServer::options().directive("appendonly", "yes");
    options.directive("appendfsync", appendfsync)
}

fn builder(servers: &Servers) -> LockManagerBuilder {
    LockManager::builder()
        .urls(servers.urls())
        .node_timeout(Duration::from_secs(1))
        .connect_timeout(SOON)
}

async fn manager(servers: &Servers) -> LockManager {
    builder(servers).connect().await.unwrap()
}

async fn acquire(locks: &LockManager) -> LockGuard {
    locks.lock(KEY).expire(LONG).try_acquire().await.unwrap()
}

/// As soon as enough servers are connected to again.
async fn refused(locks: &LockManager) {
    eventually("the servers vote again", SOON, async || {
        match locks.lock(KEY).expire(LONG).try_acquire().await {
            Ok(_) => panic!("two holders at once"),
            Err(error) => error.is_contended().then_some(()),
        }
    })
    .await;
}

async fn released(guard: LockGuard, servers: &Servers) {
    guard.release().await.unwrap();
    eventually("nothing is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

/// Each server has the lock for longer than `time`: beyond the quorum, they learn of it later.
async fn all_hold_for(servers: &Servers, time: Duration) {
    for server in servers.iter() {
        let mut probe = server.probe().await;
        eventually("each server has the lock", SOON, async || {
            probe.time_to_live(KEY).await.filter(|left| *left > time)
        })
        .await;
    }
}

async fn value(server: &RedisServer) -> Option<Vec<u8>> {
    server.probe().await.get(KEY).await
}

/// Takes back so many of the last commands about the lock, and all between them and after them. The
/// file ends before the first of them or in the middle of it, which comes to the same.
async fn cut_power(servers: &mut [RedisServer], commands: usize) {
    for server in &mut *servers {
        server.kill();
    }
    for (index, server) in servers.iter_mut().enumerate() {
        let file = AppendOnlyFile::of(server);
        let lost = file.commands_with(KEY).into_iter().nth_back(commands - 1).unwrap();
        let torn = if index.is_multiple_of(2) { 0 } else { lost.len() / 2 };
        file.cut(lost.start + torn);
        server.restart().await;
    }
}

#[tokio::test]
async fn a_killed_server_has_kept_its_locks_however_it_writes_them_down() {
    for appendfsync in ["always", "everysec", "no"] {
        let mut servers = Servers::start_with(&writing(appendfsync), 1).await;
        let (one, other) = (manager(&servers).await, manager(&servers).await);
        let holder = acquire(&one).await;
        let token = value(&servers[0]).await;
        servers[0].restart().await;
        assert_eq!(value(&servers[0]).await, token, "{appendfsync}");
        refused(&other).await;
        eventually("it is extended", SOON, async || holder.extend(LONG * 2).await.ok()).await;
        released(holder, &servers).await;
    }
}

/// A server that is killed while it writes.
#[tokio::test]
async fn a_command_that_is_torn_is_the_only_one_that_is_lost() {
    const TORN: &str = "order:43";
    let mut servers = Servers::start_with(&writing("always"), 1).await;
    let (one, other) = (manager(&servers).await, manager(&servers).await);
    let holder = acquire(&one).await;
    for kept in [|_| 1, |length| length / 2, |length| length - 1] {
        let torn = one.lock(TORN).expire(LONG);
        let torn =
            eventually("it is granted", SOON, async || torn.clone().try_acquire().await.ok());
        let torn = torn.await;
        servers[0].kill();
        let file = AppendOnlyFile::of(&servers[0]);
        let last = file.commands_with(TORN).pop().unwrap();
        file.cut(last.start + kept(last.len()));
        servers[0].restart().await;
        assert_eq!(servers[0].probe().await.keys().await, [KEY]);
        refused(&other).await;
        eventually("it is connected to", SOON, async || {
            matches!(torn.extend(LONG).await, Err(ExtendError::Lost { .. })).then_some(())
        })
        .await;
    }
    released(holder, &servers).await;
}

#[tokio::test]
async fn what_one_of_several_has_forgotten_stays_exclusive_and_is_set_again() {
    for nodes in [3, 5] {
        let mut servers = Servers::start_with(&writing("no"), nodes).await;
        let (one, other) = (manager(&servers).await, manager(&servers).await);
        let holder = acquire(&one).await;
        all_hold_for(&servers, Duration::ZERO).await;
        cut_power(&mut servers[..nodes / 2], 1).await;
        for forgetful in &servers[..nodes / 2] {
            assert_eq!(value(forgetful).await, None, "the power cut took nothing");
        }
        refused(&other).await;
        let token = value(&servers[nodes - 1]).await;
        assert!(token.is_some());
        for forgetful in &servers[..nodes / 2] {
            eventually("it is set again", SOON, async || {
                holder.extend(LONG * 2).await.unwrap();
                (value(forgetful).await == token).then_some(())
            })
            .await;
        }
        refused(&other).await;
        released(holder, &servers).await;
    }
}

/// What of a lock's life a majority forgets.
#[derive(Debug, Clone, Copy)]
enum Forgotten {
    Grant,
    Extension,
}

/// Cuts the power of a majority while a lock is held. Says whether somebody else got it before its
/// holder had to give it up.
async fn overlap(nodes: usize, forgotten: Forgotten, guarded: bool) -> bool {
    let mut servers = Servers::start_with(&writing("no"), nodes).await;
    let one = manager(&servers).await;
    let other = builder(&servers).expire(LEASE);
    let other = if guarded { other.restart_guard(LEASE) } else { other };
    let other = other.connect().await.unwrap();
    // The guard has let go of their first start.
    eventually("all vote", SOON, async || {
        let guard = other.lock(KEY).try_acquire().await.ok()?;
        let votes = servers.keys().await.len();
        guard.release().await.unwrap();
        (votes == nodes).then_some(())
    })
    .await;
    // On a machine that is so busy that the lease is over before the servers are back there is nothing
    // to see, and it is tried again.
    eventually("it is seen inside a lease", SOON * 3, async || {
        let expire = match forgotten {
            Forgotten::Grant => LEASE,
            Forgotten::Extension => SHORTER,
        };
        let holder = one.lock(KEY).expire(expire).try_acquire().await.ok()?;
        all_hold_for(&servers, Duration::ZERO).await;
        if let Forgotten::Extension = forgotten {
            holder.extend(LEASE).await.ok()?;
            all_hold_for(&servers, SHORTER).await;
        }
        cut_power(&mut servers[..=nodes / 2], 1).await;
        let answered = eventually("the servers are connected to", SOON, async || {
            let attempt = other.lock(KEY).try_acquire().await;
            attempt.as_ref().err().is_none_or(all_were_asked).then_some(attempt)
        });
        let answered = answered.await;
        let restarted = answered.as_ref().err().map_or(0, just_restarted);
        let refused = holder.is_valid() && restarted > 0;
        if refused {
            assert_eq!(restarted, if guarded { nodes / 2 + 1 } else { 0 });
        }
        let second = match answered {
            Ok(second) => second,
            Err(_) => {
                eventually("the other gets the lock", SOON, async || {
                    other.lock(KEY).try_acquire().await.ok()
                })
                .await
            }
        };
        let overlap = holder.is_valid();
        released(second, &servers).await;
        (overlap || refused).then_some(overlap)
    })
    .await
}

/// Whether each node was connected to.
fn all_were_asked(error: &LockError) -> bool {
    let is_down = |vote: &Vote| {
        matches!(vote, Vote::Failed(NodeError::NotConnected(_) | NodeError::ConnectionBroke(_)))
    };
    !error.votes().unwrap().iter().any(|(_, vote)| vote.is_some_and(is_down))
}

/// How many nodes were not asked because they were restarted.
fn just_restarted(error: &LockError) -> usize {
    let votes = error.votes().unwrap().iter();
    votes
        .filter(|(_, vote)| matches!(vote, Some(Vote::Failed(NodeError::Restarted { .. }))))
        .count()
}

/// That it happens without the guard is the proof that these tests could see it.
async fn lets_a_second_one_in_unless_it_is_guarded(nodes: usize, forgotten: Forgotten) {
    let (unguarded, guarded) =
        tokio::join!(overlap(nodes, forgotten, false), overlap(nodes, forgotten, true));
    assert!(unguarded, "{nodes} nodes, not guarded");
    assert!(!guarded, "{nodes} nodes, guarded");
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_holder_lets_a_second_one_in_unless_it_is_guarded() {
    lets_a_second_one_in_unless_it_is_guarded(1, Forgotten::Grant).await;
}

#[tokio::test]
async fn a_majority_that_has_forgotten_the_holder_lets_a_second_one_in_unless_it_is_guarded() {
    lets_a_second_one_in_unless_it_is_guarded(3, Forgotten::Grant).await;
}

/// The lock is there, and runs out before its holder thinks.
#[tokio::test]
async fn a_majority_that_has_forgotten_an_extension_lets_a_second_one_in_unless_it_is_guarded() {
    lets_a_second_one_in_unless_it_is_guarded(3, Forgotten::Extension).await;
}

/// The release is forgotten, and the next holder with it (invariants 2 and 4).
#[tokio::test]
async fn a_released_lock_that_comes_back_keeps_everybody_out_until_its_lease_is_over() {
    let mut servers = Servers::start_with(&writing("no"), 3).await;
    let (one, other) = (manager(&servers).await, manager(&servers).await);
    let first = acquire(&one).await;
    all_hold_for(&servers, Duration::ZERO).await;
    let ghost = value(&servers[0]).await;
    released(first, &servers).await;
    let second = acquire(&other).await;
    all_hold_for(&servers, Duration::ZERO).await;
    cut_power(&mut servers[..2], 2).await;

    refused(&one).await;
    let error = eventually("the servers are asked", SOON, async || {
        let error = second.extend(LONG * 2).await.unwrap_err();
        (!matches!(error, ExtendError::Unavailable { .. })).then_some(error)
    });
    let error = error.await;
    assert!(matches!(error, ExtendError::Lost { .. }), "{error}");
    assert!(!second.is_valid());
    let error = second.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Expired { .. }), "{error}");
    refused(&one).await;
    for server in &servers[..2] {
        assert_eq!(value(server).await, ghost);
        assert!(server.probe().await.time_to_live(KEY).await.unwrap() <= LONG);
    }
}

/// The counter is written in one transaction with the lock. It goes on at the time, not at what it
/// was.
#[tokio::test]
async fn a_fencing_number_that_was_forgotten_is_not_given_to_the_next_holder() {
    for nodes in [1, 3] {
        let mut servers = Servers::start_with(&writing("no"), nodes).await;
        let locks = manager(&servers).await;
        let fenced = || locks.lock(KEY).expire(LONG).fenced().try_acquire();
        let first = fenced().await.unwrap();
        all_hold_for(&servers, Duration::ZERO).await;
        let known = first.fencing_token();
        first.release().await.unwrap();
        let second = eventually("it is free", SOON, async || fenced().await.ok()).await;
        all_hold_for(&servers, Duration::ZERO).await;
        let forgotten = second.fencing_token();
        assert!(forgotten > known);
        cut_power(&mut servers, 1).await;
        let next = eventually("it is free again", SOON, async || {
            manager(&servers).await.lock(KEY).expire(LONG).fenced().try_acquire().await.ok()
        })
        .await;
        assert!(next.fencing_token() > forgotten, "{next:?} after {second:?}");
    }
}
