//! Masters that fail, and replicas that are promoted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redlock_core::{LockError, LockGuard, LockManager, NodeError, Vote};
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

/// Returns whether the node refuses to vote because its server was promoted.
fn is_promoted(error: &LockError) -> bool {
    let votes = error.votes().cloned().unwrap_or_default();
    let is_promoted = |vote| matches!(vote, Some(&Vote::Failed(NodeError::Promoted { .. })));
    votes.iter().any(|(_, vote)| is_promoted(vote))
}

/// Waits until the servers are old enough to grant locks with the guard.
async fn granted(locks: &LockManager, key: &str, lease: Duration) -> LockGuard {
    eventually("the lock is granted", SOON, async || {
        locks.lock(key).expire(lease).try_acquire().await.ok()
    })
    .await
}

/// A second caller gets a lock that the promoted master has forgotten, unless it is quarantined.
#[tokio::test]
async fn a_promoted_master_grants_no_forgotten_lock_with_the_restart_guard() {
    let grants = async |guarded| {
        let mut cluster = RedisCluster::start_with_replicas().await;
        let key = cluster.key_on(0, "order").await;
        // Without the guard, the lock is held during any failover.
        let lease = if guarded { LEASE } else { 10 * LEASE };
        let connect = async || {
            let builder = builder(&cluster).expire(lease);
            let builder = if guarded { builder.restart_guard(lease) } else { builder };
            builder.connect().await.unwrap()
        };
        let (locks, other) = (connect().await, connect().await);
        let guard = granted(&locks, &key, lease).await;
        cluster.probe(0).await.command::<i64>(["WAIT", "1", "1000"]).await;
        fail_over(&mut cluster, &key, false).await;
        forget(&cluster, &key).await;
        let mut refused = false;
        let overlap = eventually("the second caller gets the lock", SOON, async || {
            let attempt = other.lock(&key).try_acquire().await;
            refused |= attempt.as_ref().is_err_and(is_promoted);
            attempt.is_ok().then(|| guard.is_valid())
        })
        .await;
        assert_eq!(overlap, !guarded, "guard: {guarded}");
        assert_eq!(refused, guarded, "guard: {guarded}");
    };
    tokio::join!(grants(false), grants(true));
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
    granted(&locks, &key, LONGEST).await.release().await.unwrap();
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
    granted(&locks, &key, LONGEST).await.release().await.unwrap();
    assert!(earliest.elapsed() >= LONGEST + MARGIN, "{:?}", earliest.elapsed());
}

/// The first master keeps its connections while it is a replica, and the manager sends nothing to it meanwhile.
#[tokio::test]
async fn a_master_that_was_replaced_for_a_moment_is_quarantined() {
    let cluster = RedisCluster::start_with_replicas().await;
    let key = cluster.key_on(0, "order").await;
    let builder = builder(&cluster).expire(LEASE).restart_guard(LEASE);
    let locks = builder.cluster_refresh(SOON / 10).connect().await.unwrap();
    granted(&locks, &key, LEASE).await.release().await.unwrap();
    for (next, former) in [(3, 0), (0, 3)] {
        cluster.probe(next).await.command::<()>(["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
        cluster.become_replica(former).await;
        cluster.become_complete().await;
    }
    eventually("the master is quarantined", SOON, async || {
        is_promoted(&locks.lock(&key).try_acquire().await.err()?).then_some(())
    })
    .await;
}

/// A lock whose master is stopped or killed is available again after the failover, and other locks are never affected.
#[tokio::test]
async fn a_failover_concerns_only_the_locks_of_its_master() {
    let concerns_one = async |freeze| {
        let mut cluster = RedisCluster::start_with_replicas().await;
        let keys = [cluster.key_on(0, "a").await, cluster.key_on(1, "b").await];
        let builder = builder(&cluster).cluster_refresh(Duration::from_millis(500));
        let locks = builder.node_timeout(Duration::from_secs(3)).connect().await.unwrap();
        for key in &keys {
            locks.lock(key).acquire().await.unwrap().release().await.unwrap();
        }
        // The other masters refuse commands while they wait for the vote on the new master, which takes less than a second.
        let busy = tokio::spawn({
            let (locks, key) = (locks.clone(), keys[1].clone());
            async move {
                loop {
                    match locks.lock(&key).acquire().await {
                        Ok(guard) => drop(guard.release().await),
                        Err(error) => {
                            let reasons = error.diagnostics().to_string();
                            assert!(reasons.contains("CLUSTERDOWN"), "{reasons}");
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        });
        fail_over(&mut cluster, &keys[0], freeze).await;
        granted(&locks, &keys[0], LEASE).await.release().await.unwrap();
        busy.abort();
        assert!(busy.await.unwrap_err().is_cancelled(), "another lock was affected");
    };
    tokio::join!(concerns_one(false), concerns_one(true));
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
/// two callers held the lock. Without the guard, that happens at the first time.
async fn overlaps_in(failovers: usize, guarded: bool) -> usize {
    // Without the guard, the lock is held during any failover.
    let lease = Duration::from_secs(if guarded { 5 } else { 60 });
    let mut cluster = RedisCluster::start_with_replicas().await;
    let key = cluster.key_on(0, "order").await;
    let mut managers = Vec::new();
    for _ in 0..3 {
        let mut builder = builder(&cluster).expire(lease).node_timeout(SOON / 40);
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
        if !guarded {
            let overlaps =
                async || Some(callers.overlaps.load(Ordering::SeqCst)).filter(|n| *n > 0);
            return eventually("two callers hold the lock", SOON, overlaps).await;
        }
        tokio::time::sleep_until(held_until.into()).await;
        callers.hold_long.store(false, Ordering::SeqCst);
        cluster.servers_mut()[master].restart().await;
        cluster.become_replica(master).await;
    }
    callers.overlaps.load(Ordering::SeqCst)
}

/// With `REDLOCK_ALL_NODES=1`, thirty failovers.
#[tokio::test]
async fn failovers_lead_to_overlaps_only_without_the_restart_guard() {
    let failovers = if Nodes::all_kinds() { 30 } else { 2 };
    let (unguarded, guarded) = tokio::join!(overlaps_in(1, false), overlaps_in(failovers, true));
    assert!(unguarded > 0, "the failovers are harmless without a guard too");
    assert_eq!(guarded, 0);
}
