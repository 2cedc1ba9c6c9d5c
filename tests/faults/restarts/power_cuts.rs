//! Servers with an append-only file that lose the end of it.
//!
//! A killed server loses nothing: the kernel already has the writes of all answered commands. After a power
//! cut the server returns to an earlier state: some locks are missing, released locks are back, and extended
//! leases are short again. The tests imitate a power cut by truncating the file.

use std::time::Duration;

use redlock_core::{HoldError, LockGuard, LockManager, ReleaseError};
use redlock_tests::{AppendOnlyFile, RedisOptions, RedisServer, Servers, eventually};

use super::{KEY, LEASE, LONG, SOON, becomes_empty, granted_by_all, guarded, restarted, unguarded};

/// A lease that the holder extends.
const SHORTER: Duration = Duration::from_millis(2500);

/// With `always`, a power cut loses no answered command. With `no`, the kernel decides when to write, so a
/// power cut may lose many.
pub(super) fn writing(appendfsync: &str) -> RedisOptions {
    let options = RedisServer::options().directive("appendonly", "yes");
    options.directive("appendfsync", appendfsync)
}

async fn acquire(locks: &LockManager) -> LockGuard {
    locks.lock(KEY).expire(LONG).try_acquire().await.unwrap()
}

/// Checks that the lock is contended, as soon as enough servers are connected again.
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
    becomes_empty(servers).await;
}

/// Waits until each server has the lock for longer than `time`. Servers beyond the quorum get it later.
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

/// Cuts the power. The servers lose the last `commands` commands about the lock, and all commands between and
/// after them, or all of their data if there are not so many. The file ends before the first lost command or in its
/// middle, which has the same effect.
async fn cut_power(servers: &mut [RedisServer], commands: usize) {
    for server in &mut *servers {
        server.kill();
    }
    for (index, server) in servers.iter_mut().enumerate() {
        let file = AppendOnlyFile::of(server);
        let lost = file.commands_with(KEY).into_iter().nth_back(commands - 1).unwrap_or_default();
        let kept = if index.is_multiple_of(2) { 0 } else { lost.len() / 2 };
        file.cut(lost.start + kept);
        server.restart().await;
    }
}

#[tokio::test]
async fn a_killed_server_keeps_its_locks_with_every_appendfsync() {
    for appendfsync in ["always", "everysec", "no"] {
        let mut servers = Servers::start_with(&writing(appendfsync), 1).await;
        let (one, other) = (unguarded(&servers).await, unguarded(&servers).await);
        let holder = acquire(&one).await;
        let token = value(&servers[0]).await;
        servers[0].restart().await;
        assert_eq!(value(&servers[0]).await, token, "{appendfsync}");
        refused(&other).await;
        eventually("the lease is extended", SOON, async || holder.extend(LONG * 2).await.ok())
            .await;
        released(holder, &servers).await;
    }
}

/// The server is killed in the middle of a write.
#[tokio::test]
async fn a_truncated_command_is_the_only_lost_command() {
    const TRUNCATED: &str = "order:43";
    let mut servers = Servers::start_with(&writing("always"), 1).await;
    let (one, other) = (unguarded(&servers).await, unguarded(&servers).await);
    let holder = acquire(&one).await;
    for kept in [|_| 1, |length| length / 2, |length| length - 1] {
        let truncated = one.lock(TRUNCATED).expire(LONG);
        let truncated = eventually("the lock is granted", SOON, async || {
            truncated.clone().try_acquire().await.ok()
        });
        let truncated = truncated.await;
        servers[0].kill();
        let file = AppendOnlyFile::of(&servers[0]);
        let last = file.commands_with(TRUNCATED).pop().unwrap();
        file.cut(last.start + kept(last.len()));
        servers[0].restart().await;
        assert_eq!(servers[0].probe().await.keys().await, [KEY]);
        refused(&other).await;
        eventually("the server is connected again", SOON, async || {
            matches!(truncated.extend(LONG).await, Err(HoldError::Lost(_))).then_some(())
        })
        .await;
    }
    released(holder, &servers).await;
}

#[tokio::test]
async fn a_lock_that_a_minority_forgot_stays_exclusive_and_is_restored() {
    for nodes in [3, 5] {
        let mut servers = Servers::start_with(&writing("no"), nodes).await;
        let (one, other) = (unguarded(&servers).await, unguarded(&servers).await);
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
            eventually("the lock is restored", SOON, async || {
                holder.extend(LONG * 2).await.unwrap();
                (value(forgetful).await == token).then_some(())
            })
            .await;
        }
        refused(&other).await;
        released(holder, &servers).await;
    }
}

/// What a majority forgets while a lock is held.
#[derive(Debug, Clone, Copy)]
enum Forgotten {
    Everything,
    Grant,
    Extension,
}

/// Lets a majority restart while a lock is held. Returns whether another caller got the lock while the holder's was
/// still valid.
async fn overlap(forgotten: Forgotten, nodes: usize, is_guarded: bool) -> bool {
    let mut servers = Servers::start_with(&writing("no"), nodes).await;
    let one = unguarded(&servers).await;
    let other = if is_guarded { guarded(&servers).await } else { unguarded(&servers).await };
    // Waits until the quarantine after the first start is over.
    granted_by_all(&other, &servers).await.release().await.unwrap();
    becomes_empty(&servers).await;
    // Without the guard, there is no need to wait for the end of the lease.
    let lease = if is_guarded { LEASE } else { LONG };
    let expire = if let Forgotten::Extension = forgotten { SHORTER } else { lease };
    let holder = one.lock(KEY).expire(expire).try_acquire().await.unwrap();
    all_hold_for(&servers, Duration::ZERO).await;
    if let Forgotten::Extension = forgotten {
        holder.extend(lease).await.unwrap();
        all_hold_for(&servers, SHORTER).await;
    }
    let majority = nodes / 2 + 1;
    let commands = if let Forgotten::Everything = forgotten { usize::MAX } else { 1 };
    cut_power(&mut servers[..majority], commands).await;
    let mut refusals = Vec::new();
    let second = eventually("the other caller gets the lock", SOON, async || {
        let attempt = other.lock(KEY).try_acquire().await;
        attempt.map_err(|error| refusals.push(restarted(&error).len())).ok()
    })
    .await;
    let overlap = holder.is_valid();
    assert_eq!(refusals.contains(&majority), is_guarded, "{refusals:?}");
    second.release().await.unwrap();
    drop(holder);
    becomes_empty(&servers).await;
    overlap
}

/// The overlap without the guard proves that these tests can detect one.
async fn grants_a_second_holder_unless_guarded(forgotten: Forgotten, nodes: usize) {
    let (unguarded, guarded) =
        tokio::join!(overlap(forgotten, nodes, false), overlap(forgotten, nodes, true));
    assert!(unguarded, "{forgotten:?}, {nodes} nodes, not guarded");
    assert!(!guarded, "{forgotten:?}, {nodes} nodes, guarded");
}

#[tokio::test]
async fn a_majority_that_forgot_everything_grants_a_second_holder_unless_guarded() {
    let of = |nodes| grants_a_second_holder_unless_guarded(Forgotten::Everything, nodes);
    tokio::join!(of(1), of(3));
}

#[tokio::test]
async fn a_majority_that_forgot_the_holder_grants_a_second_one_unless_guarded() {
    let of = |nodes| grants_a_second_holder_unless_guarded(Forgotten::Grant, nodes);
    tokio::join!(of(1), of(3));
}

/// The servers still have the lock, but it expires before the holder's deadline.
#[tokio::test]
async fn a_majority_that_forgot_an_extension_grants_a_second_holder_unless_guarded() {
    grants_a_second_holder_unless_guarded(Forgotten::Extension, 3).await;
}

/// The servers forget the release and the next holder's lock (only the owner releases; every lock has a
/// deadline).
#[tokio::test]
async fn a_released_lock_that_comes_back_blocks_all_callers_until_its_lease_ends() {
    let mut servers = Servers::start_with(&writing("no"), 3).await;
    let (one, other) = (unguarded(&servers).await, unguarded(&servers).await);
    let first = acquire(&one).await;
    all_hold_for(&servers, Duration::ZERO).await;
    let first_token = value(&servers[0]).await;
    released(first, &servers).await;
    let second = acquire(&other).await;
    all_hold_for(&servers, Duration::ZERO).await;
    cut_power(&mut servers[..2], 2).await;

    refused(&one).await;
    let error = eventually("the servers vote again", SOON, async || {
        let error = second.extend(LONG * 2).await.unwrap_err();
        (!matches!(error, HoldError::Unavailable { .. })).then_some(error)
    });
    let error = error.await;
    assert!(matches!(error, HoldError::Lost(_)), "{error}");
    assert!(!second.is_valid());
    let error = second.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    refused(&one).await;
    for server in &servers[..2] {
        assert_eq!(value(server).await, first_token);
        assert!(server.probe().await.time_to_live(KEY).await.unwrap() <= LONG);
    }
}

/// The servers forget the counter together with the lock, because one transaction writes both. The next
/// number continues from the server's clock, not from the old counter.
#[tokio::test]
async fn a_forgotten_fencing_number_is_not_issued_again() {
    for nodes in [1, 3] {
        let mut servers = Servers::start_with(&writing("no"), nodes).await;
        let locks = unguarded(&servers).await;
        let fenced = || locks.lock(KEY).expire(LONG).fenced(true).try_acquire();
        let first = fenced().await.unwrap();
        all_hold_for(&servers, Duration::ZERO).await;
        let known = first.fencing_token().unwrap();
        first.release().await.unwrap();
        let second = eventually("the lock is free", SOON, async || fenced().await.ok()).await;
        all_hold_for(&servers, Duration::ZERO).await;
        let forgotten = second.fencing_token().unwrap();
        assert!(forgotten > known);
        cut_power(&mut servers, 1).await;
        let next = eventually("the lock is free again", SOON, async || {
            unguarded(&servers).await.lock(KEY).expire(LONG).fenced(true).try_acquire().await.ok()
        })
        .await;
        assert!(next.fencing_token().unwrap() > forgotten, "{next:?} after {second:?}");
    }
}
