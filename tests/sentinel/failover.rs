//! How soon locks are granted after a failover, and to whom.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockError, LockGuard, LockManager, NodeError, Vote};
use redlock_tests::{FailoverGroup, Logs, RedisServer, eventually};

use super::{KEY, QUIET, SOON, builder};

const LONG: Duration = Duration::from_secs(60);
/// The longest lease with the restart guard. A renewed lock outlasts a failover and the margin.
const LEASE: Duration = Duration::from_secs(6);
const MARGIN: Duration = Duration::from_secs(1);

async fn try_acquire(locks: &LockManager, key: &str) -> Result<LockGuard, LockError> {
    locks.lock(key).expire(LEASE).try_acquire().await
}

/// Waits until a free lock is granted and released.
async fn granted(locks: &LockManager) {
    eventually("the lock is granted", SOON, async || {
        try_acquire(locks, "free").await.ok()?.release().await.ok()
    })
    .await;
}

/// Waits until this server grants a lock. The former master may grant others before.
async fn granted_by(server: &RedisServer, locks: &LockManager) {
    let mut number = 0;
    eventually("the server grants a lock", SOON, async || {
        number += 1;
        let key = format!("free:{number}");
        let _held = try_acquire(locks, &key).await.ok()?;
        server.probe().await.get(&key).await.map(drop)
    })
    .await;
}

/// Returns whether the node refuses to vote because its server was promoted.
fn is_promoted(error: &LockError) -> bool {
    let is_promoted = |(_, vote)| matches!(vote, Some(&Vote::Failed(NodeError::Promoted { .. })));
    error.votes().is_some_and(|votes| votes.iter().any(is_promoted))
}

/// The new master has the locks that were replicated to it.
#[tokio::test]
async fn locks_go_on_at_the_promoted_server() {
    let _quiet = QUIET.lock().await;
    let logs = Logs::collect();
    let group = FailoverGroup::start().await;
    let locks = builder(&group.url()).connect().await.unwrap();
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    eventually("the replicas have the lock", SOON, async || {
        let has = group.servers.iter().map(async |server| server.probe().await.get(KEY).await);
        join_all(has).await.iter().all(Option::is_some).then_some(())
    })
    .await;
    let master = group.fail_over().await;
    granted_by(&group.servers[master], &locks).await;
    guard.extend(LONG).await.unwrap();
    let other = builder(&group.url()).connect().await.unwrap();
    assert!(other.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    guard.release().await.unwrap();
    other.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
    assert_eq!(logs.count("WARN", "a server was promoted"), 1, "{:?}", logs.lines());
    assert!(logs.count("WARN", "set min-replicas-to-write") >= 2);
}

/// The replicas lack the lock, as if the master had failed before they got it. Without a hint, the holder would rely on its
/// lock until a renewal.
#[tokio::test]
async fn a_holder_learns_at_once_that_the_promoted_server_lacks_its_lock() {
    let _quiet = QUIET.lock().await;
    let group = FailoverGroup::start().await;
    let locks = builder(&group.url()).connect().await.unwrap();
    let master = group.master().await;
    let guard = locks.lock(KEY).expire(10 * LONG).try_acquire().await.unwrap();
    let lost = guard.lost();
    for (_, server) in group.servers.iter().enumerate().filter(|(index, _)| *index != master) {
        let mut probe = server.probe().await;
        eventually("the replica has the lock", SOON, async || probe.get(KEY).await).await;
        probe.command::<()>(["CONFIG", "SET", "replica-read-only", "no"]).await;
        probe.command::<()>(["DEL", KEY]).await;
    }
    group.fail_over().await;
    tokio::time::timeout(5 * LONG, lost).await.expect("the holder learns of its loss");
    assert!(!guard.is_valid());
}

/// The faults of a master.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Killed,
    Frozen,
    /// The sentinels promote another server, while the master lives.
    Ordered,
}

/// Strikes the master. Returns the time from the promotion to the first grant.
async fn grant_after(fault: Fault, group: &mut FailoverGroup, locks: &LockManager) -> Duration {
    let former = group.master().await;
    match fault {
        Fault::Killed => group.servers[former].kill(),
        Fault::Frozen => group.servers[former].freeze(),
        Fault::Ordered => {}
    }
    let master = match fault {
        Fault::Ordered => group.fail_over().await,
        Fault::Killed | Fault::Frozen => group.promoted_after(former).await,
    };
    let promoted = Instant::now();
    granted_by(&group.servers[master], locks).await;
    let after = promoted.elapsed();
    match fault {
        Fault::Killed => group.servers[former].restart().await,
        Fault::Frozen => group.servers[former].thaw(),
        Fault::Ordered => {}
    }
    group.settle().await;
    after
}

/// Waits until the sentinel that leads the failover names another master. Returns its index, and a time shortly before.
async fn named_after(group: &FailoverGroup) -> (usize, Instant) {
    let former = group.master().await;
    let mut before = Instant::now();
    eventually("another server is named", SOON, async || {
        let asked = Instant::now();
        let named = group.named_now().await.filter(|named| *named != former);
        if named.is_none() {
            before = asked;
        }
        named.map(|named| (named, before))
    })
    .await
}

/// Without the guard, a promoted server grants locks at once.
#[tokio::test]
async fn the_promoted_server_grants_soon() {
    let _quiet = QUIET.lock().await;
    let mut group = FailoverGroup::start().await;
    let locks = builder(&group.url()).connect().await.unwrap();
    let mut times = Vec::new();
    for fault in [Fault::Killed, Fault::Frozen, Fault::Ordered] {
        times.push(grant_after(fault, &mut group, &locks).await);
    }
    println!("first grants after promotions: {times:?}");
    assert!(times.iter().all(|time| *time <= SOON / 2), "{times:?}");
}

/// The former master may have granted locks that the promoted one does not know.
#[tokio::test]
async fn with_the_guard_a_promoted_server_grants_after_the_longest_lease_and_the_margin() {
    let _quiet = QUIET.lock().await;
    let group = FailoverGroup::start().await;
    let guarded =
        || builder(&group.url()).expire(LEASE).restart_guard(LEASE).failover_margin(MARGIN);
    let locks = guarded().connect().await.unwrap();
    granted(&locks).await;
    let kept = locks.lock(KEY).expire(LEASE).renew(true).try_acquire().await.unwrap();
    let (url, logs) = (group.url(), Logs::collect());
    let ((master, before), _) = tokio::join!(named_after(&group), group.fail_over());
    granted_by(&group.servers[master], &locks).await;
    let after = before.elapsed();
    println!("first grant after {after:?}");
    assert!(after >= LEASE + MARGIN, "too early: {after:?}");
    group.settle().await;
    assert!(logs.count("WARN", "and is quarantined") >= 1);
    // A lock that was replicated is renewed after the margin, and held all the time.
    assert!(kept.is_valid());
    kept.release().await.unwrap();
    // A manager that connects later learns from the sentinels when the server was promoted.
    group.fail_over().await;
    let late = builder(&url).expire(LEASE).restart_guard(LEASE).failover_margin(MARGIN);
    let late = late.connect().await.unwrap();
    let error = try_acquire(&late, "free").await.unwrap_err();
    assert!(is_promoted(&error), "{error}: {}", error.diagnostics());
}

/// One of three groups in quarantine does not delay the others.
#[tokio::test]
async fn a_failover_of_one_of_three_groups_delays_no_grant() {
    let _quiet = QUIET.lock().await;
    let mut groups =
        join_all([FailoverGroup::start(), FailoverGroup::start(), FailoverGroup::start()]);
    let mut groups = (&mut groups).await;
    // A request that waited for the failing group would take so long.
    let node_timeout = LEASE.checked_sub(MARGIN).unwrap();
    let mut manager = LockManager::builder().connect_timeout(SOON).node_timeout(node_timeout);
    manager = manager.urls(groups.iter().map(FailoverGroup::url));
    manager = manager.expire(LEASE).restart_guard(LEASE).failover_margin(MARGIN);
    let locks = manager.connect().await.unwrap();
    granted(&locks).await;
    let logs = Logs::collect();
    let mut worst = Duration::ZERO;
    let master = groups[0].master().await;
    groups[0].servers[master].kill();
    let promoted = groups[0].promoted_after(master);
    tokio::pin!(promoted);
    // The end of the quarantine, which begins with the promotion.
    let mut end = None;
    while end.is_none_or(|end| Instant::now() < end) {
        let begun = Instant::now();
        granted(&locks).await;
        worst = worst.max(begun.elapsed());
        if end.is_none() && futures_util::FutureExt::now_or_never(&mut promoted).is_some() {
            end = Some(Instant::now() + LEASE + MARGIN + Duration::from_secs(1));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(logs.count("WARN", "and is quarantined") >= 1, "{:?}", logs.lines());
    println!("slowest grant {worst:?}");
    assert!(worst < node_timeout, "{worst:?}");
}
