//! Masters that fail, and replicas that are promoted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redlock_core::{LockManager, NodeError, Vote};
use redlock_tests::{Nodes, RedisCluster, eventually};
use tokio::task::JoinSet;

use super::{SOON, builder};

/// Longer than a failover takes.
const LEASE: Duration = Duration::from_secs(8);

/// Kills or freezes the master of a key, and waits until its replica owns the slot. Returns the number of the new owner.
async fn fail_over(cluster: &mut RedisCluster, key: &str, freeze: bool) -> usize {
    let owner = cluster.owner(key).await;
    if freeze {
        cluster.servers_mut()[owner].freeze();
    } else {
        cluster.servers_mut()[owner].kill();
    }
    promoted(cluster, key, owner).await
}

async fn promoted(cluster: &RedisCluster, key: &str, before: usize) -> usize {
    eventually("a replica is promoted", SOON, async || {
        for (number, server) in cluster.servers().iter().enumerate() {
            if number == before || !server.is_up() {
                continue;
            }
            let mut probe = server.probe().await;
            let state: String = probe.command(["CLUSTER", "INFO"]).await;
            let keys = probe.try_command::<Option<String>>(["GET", key]).await;
            if state.contains("cluster_state:ok") && keys.is_ok() {
                return Some(number);
            }
        }
        None
    })
    .await
}

/// Makes the replica forget a held lock, as a failover before the replication does.
async fn forget(cluster: &RedisCluster, key: &str) {
    let owner = cluster.owner(key).await;
    cluster.probe(owner).await.command::<i64>(["DEL", key]).await;
}

/// A second caller gets a lock that the promoted master has forgotten, unless it is quarantined.
#[tokio::test]
async fn a_promoted_master_grants_no_forgotten_lock_with_the_restart_guard() {
    for guarded in [false, true] {
        let mut cluster = RedisCluster::start_with_replicas().await;
        let key = cluster.key_on(0, "order").await;
        let connect = async || {
            let mut builder = builder(&cluster);
            if guarded {
                builder = builder.expire(LEASE).restart_guard(LEASE);
            }
            builder.connect().await.unwrap()
        };
        let (locks, other) = (connect().await, connect().await);
        let guard = eventually("the servers are old enough", SOON, async || {
            locks.lock(&key).expire(LEASE).try_acquire().await.ok()
        })
        .await;
        let overlap = Arc::new(AtomicBool::new(false));
        cluster.probe(0).await.command::<i64>(["WAIT", "1", "1000"]).await;
        fail_over(&mut cluster, &key, false).await;
        forget(&cluster, &key).await;
        let mut reasons = Vec::new();
        while guard.is_valid() {
            match other.lock(&key).expire(LEASE).try_acquire().await {
                Ok(_) => {
                    overlap.store(guard.is_valid(), Ordering::SeqCst);
                    break;
                }
                Err(error) => {
                    let votes = error.votes().cloned().unwrap_or_default();
                    reasons.extend(votes.iter().filter_map(|(_, vote)| vote.cloned()));
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(overlap.load(Ordering::SeqCst), !guarded, "guard: {guarded}");
        let is_promoted = |vote: &Vote| matches!(vote, Vote::Failed(NodeError::Promoted { .. }));
        assert_eq!(reasons.iter().any(is_promoted), guarded, "{reasons:?}");
    }
}

/// The former master may grant locks until the margin is over, and these locks last for the longest lease.
#[tokio::test]
async fn a_promoted_master_grants_locks_after_the_longest_lease_and_the_margin() {
    const LONGEST: Duration = Duration::from_secs(3);
    const MARGIN: Duration = Duration::from_secs(2);
    let mut cluster = RedisCluster::start_with_replicas().await;
    let key = cluster.key_on(0, "order").await;
    let builder = builder(&cluster).expire(LONGEST).restart_guard(LONGEST);
    let locks = builder.failover_margin(MARGIN).connect().await.unwrap();
    let granted = async || {
        eventually("the lock is granted", SOON, async || locks.lock(&key).try_acquire().await.ok())
            .await
    };
    granted().await.release().await.unwrap();
    let mut replica = cluster.probe(3).await;
    cluster.servers_mut()[0].kill();
    let (mut earliest, latest) = (Instant::now(), Instant::now() + SOON);
    loop {
        let asked = Instant::now();
        if replica.command::<String>(["INFO", "replication"]).await.contains("role:master") {
            break;
        }
        earliest = asked;
        assert!(asked < latest, "the replica is not promoted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let promoted = Instant::now();
    granted().await.release().await.unwrap();
    let (least, most) = (promoted.elapsed(), earliest.elapsed());
    println!("the first grant was {least:?} to {most:?} after the promotion");
    assert!(most >= LONGEST + MARGIN, "{most:?}");
    assert!(least <= LONGEST + MARGIN + Duration::from_secs(1), "{least:?}");
}

/// The first master keeps its connections while it is a replica, and the manager sends nothing to it meanwhile.
#[tokio::test]
async fn a_master_that_was_replaced_for_a_moment_is_quarantined() {
    let cluster = RedisCluster::start_with_replicas().await;
    let key = cluster.key_on(0, "order").await;
    let builder = builder(&cluster).expire(LEASE).restart_guard(LEASE);
    let locks = builder.cluster_refresh(SOON / 10).connect().await.unwrap();
    let guard = eventually("the servers are old enough", SOON, async || {
        locks.lock(&key).try_acquire().await.ok()
    });
    guard.await.release().await.unwrap();
    for (next, former) in [(3, 0), (0, 3)] {
        cluster.probe(next).await.command::<()>(["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
        cluster.become_replica(former).await;
        cluster.become_complete().await;
    }
    eventually("the master is quarantined", SOON, async || {
        let error = locks.lock(&key).try_acquire().await.err()?;
        let votes = error.votes().cloned().unwrap_or_default();
        let is_promoted = |(_, vote): (&str, Option<&Vote>)| {
            matches!(vote, Some(Vote::Failed(NodeError::Promoted { .. })))
        };
        votes.iter().any(is_promoted).then_some(())
    })
    .await;
}

/// A lock whose master is stopped or killed is available again after the failover, and other locks are never affected.
#[tokio::test]
async fn a_failover_concerns_only_the_locks_of_its_master() {
    for freeze in [false, true] {
        let mut cluster = RedisCluster::start_with_replicas().await;
        let keys = [cluster.key_on(0, "a").await, cluster.key_on(1, "b").await];
        let locks =
            builder(&cluster).cluster_refresh(Duration::from_millis(500)).connect().await.unwrap();
        for key in &keys {
            locks.lock(key).acquire().await.unwrap().release().await.unwrap();
        }
        let failures = Arc::new(AtomicUsize::new(0));
        let busy = tokio::spawn({
            let (locks, key, failures) = (locks.clone(), keys[1].clone(), Arc::clone(&failures));
            async move {
                loop {
                    match locks.lock(&key).acquire().await {
                        Ok(guard) => drop(guard.release().await),
                        Err(_) => drop(failures.fetch_add(1, Ordering::SeqCst)),
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        });
        fail_over(&mut cluster, &keys[0], freeze).await;
        let again = eventually("the lock is available again", SOON, async || {
            locks.lock(&keys[0]).try_acquire().await.ok()
        });
        again.await.release().await.unwrap();
        busy.abort();
        // The other masters refuse commands while they wait for the vote on the new master (`CLUSTERDOWN`), which
        // takes less than a second.
        assert!(failures.load(Ordering::SeqCst) < 200, "{failures:?} failures");
    }
}

/// The callers of the failover test, each with a manager of its own.
struct Callers {
    tasks: JoinSet<()>,
    /// Whether a holder keeps the lock for most of its lease.
    hold_long: Arc<AtomicBool>,
    grants: Arc<AtomicUsize>,
    overlaps: Arc<AtomicUsize>,
}

impl Callers {
    /// Starts a caller with each manager.
    fn start(managers: Vec<LockManager>, key: &str, lease: Duration) -> Self {
        let mut callers = Self {
            tasks: JoinSet::new(),
            hold_long: Arc::default(),
            grants: Arc::default(),
            overlaps: Arc::default(),
        };
        let holders = Arc::new(AtomicUsize::new(0));
        for locks in managers {
            let (key, holders) = (key.to_owned(), Arc::clone(&holders));
            let (grants, overlaps) = (Arc::clone(&callers.grants), Arc::clone(&callers.overlaps));
            let hold_long = Arc::clone(&callers.hold_long);
            callers.tasks.spawn(async move {
                loop {
                    if let Ok(guard) = locks.lock(&key).expire(lease).try_acquire().await {
                        // Only a holder whose lock is valid counts.
                        if holders.fetch_add(1, Ordering::SeqCst) > 0 && guard.is_valid() {
                            overlaps.fetch_add(1, Ordering::SeqCst);
                        }
                        grants.fetch_add(1, Ordering::SeqCst);
                        while hold_long.load(Ordering::SeqCst) && guard.remaining() > lease / 10 {
                            tokio::time::sleep(lease / 100).await;
                        }
                        holders.fetch_sub(1, Ordering::SeqCst);
                        let _ = guard.release().await;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
        callers
    }

    /// Waits until a caller gets the lock.
    async fn next_grant(&self) {
        let before = self.grants.load(Ordering::SeqCst);
        let granted = async || (self.grants.load(Ordering::SeqCst) > before).then_some(());
        eventually("a caller gets the lock", SOON, granted).await;
    }
}

/// Lets the master of a held lock fail so many times, each time before its replica knows the lock. Returns how often
/// two callers held the lock.
async fn overlaps_in(failovers: usize, guarded: bool) -> usize {
    let lease = Duration::from_secs(5);
    let mut cluster = RedisCluster::start_with_replicas().await;
    let key = cluster.key_on(0, "order").await;
    let mut managers = Vec::new();
    for _ in 0..3 {
        let mut builder = builder(&cluster).expire(lease).node_timeout(lease / 10);
        if guarded {
            builder = builder.restart_guard(lease);
        }
        managers.push(builder.connect().await.unwrap());
    }
    let callers = Callers::start(managers, &key, lease);
    for _ in 0..failovers {
        callers.next_grant().await;
        let master = cluster.owner(&key).await;
        let replica = (master + 3) % 6;
        // The replica gets no further writes: it is frozen, and has no connection that could keep them.
        cluster.servers_mut()[replica].freeze();
        let kill = ["CLIENT", "KILL", "TYPE", "replica"];
        cluster.probe(master).await.command::<i64>(kill).await;
        callers.hold_long.store(true, Ordering::SeqCst);
        callers.next_grant().await;
        let held_until = Instant::now() + lease;
        cluster.servers_mut()[master].kill();
        cluster.servers_mut()[replica].thaw();
        promoted(&cluster, &key, master).await;
        tokio::time::sleep_until(held_until.into()).await;
        callers.hold_long.store(false, Ordering::SeqCst);
        cluster.servers_mut()[master].restart().await;
        cluster.become_replica(master).await;
    }
    let overlaps = callers.overlaps.load(Ordering::SeqCst);
    println!(
        "{failovers} failovers, {} grants, {overlaps} overlaps",
        callers.grants.load(Ordering::SeqCst)
    );
    overlaps
}

/// With `REDLOCK_ALL_NODES=1`, thirty failovers.
#[tokio::test]
async fn failovers_lead_to_overlaps_only_without_the_restart_guard() {
    let failovers = if Nodes::all_kinds() { 30 } else { 2 };
    assert!(overlaps_in(2, false).await > 0, "the failovers are harmless without a guard too");
    assert_eq!(overlaps_in(failovers, true).await, 0);
}
