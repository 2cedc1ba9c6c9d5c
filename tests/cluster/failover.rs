//! Masters that fail, and replicas that are promoted.

use std::time::{Duration, Instant};

use redlock_core::{LockError, LockGuard, LockManager, NodeError, Vote};
use redlock_tests::{Nodes, RedisCluster, eventually};

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

/// Lets the master of a held lock fail so many times, each time before its replica knows the lock. Without the guard, a
/// second caller gets the lock. With it, the promoted master is quarantined.
async fn grants_a_second_holder(failovers: usize, guarded: bool) {
    // Without the guard, the lock is held during any failover.
    let lease = if guarded { LEASE } else { 10 * LEASE };
    let mut cluster = RedisCluster::start_with_replicas().await;
    let key = cluster.key_on(0, "order").await;
    let connect = async || {
        let builder = builder(&cluster).expire(lease);
        let builder = if guarded { builder.restart_guard(lease) } else { builder };
        builder.connect().await.unwrap()
    };
    let (locks, other) = (connect().await, connect().await);
    for _ in 0..failovers {
        granted(&locks, &key, lease).await.release().await.unwrap();
        let master = cluster.owner(&key).await;
        let replica = (master + 3) % 6;
        // The replica gets no further writes: it is frozen, and has no connection that could keep them.
        cluster.servers_mut()[replica].freeze();
        let kill = ["CLIENT", "KILL", "TYPE", "replica"];
        cluster.probe(master).await.command::<i64>(kill).await;
        let holder = granted(&locks, &key, lease).await;
        cluster.servers_mut()[master].kill();
        cluster.servers_mut()[replica].thaw();
        promoted(&cluster, &key, master).await;
        let mut refused = false;
        let second = eventually("the second caller gets the lock", SOON, async || {
            let attempt = other.lock(&key).expire(lease).try_acquire().await;
            refused |= attempt.as_ref().is_err_and(is_promoted);
            attempt.ok()
        })
        .await;
        assert_eq!((holder.is_valid(), refused), (!guarded, guarded), "guard: {guarded}");
        second.release().await.unwrap();
        cluster.servers_mut()[master].restart().await;
        cluster.become_replica(master).await;
        cluster.become_complete().await;
    }
}

/// With `REDLOCK_ALL_NODES=1`, thirty failovers.
#[tokio::test]
async fn a_promoted_master_grants_a_held_lock_only_without_the_restart_guard() {
    let failovers = if Nodes::all_kinds() { 30 } else { 1 };
    tokio::join!(grants_a_second_holder(1, false), grants_a_second_holder(failovers, true));
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
            locks.lock(key).try_acquire().await.unwrap().release().await.unwrap();
        }
        // The other masters refuse commands while they wait for the vote on the new master, which takes less than a second.
        let busy = tokio::spawn({
            let (locks, key) = (locks.clone(), keys[1].clone());
            async move {
                let mut is_released = true;
                loop {
                    match locks.lock(&key).try_acquire().await {
                        Ok(guard) => is_released = guard.release().await.is_ok(),
                        // The master refused the release, which is repeated.
                        Err(LockError::Contended { .. } | LockError::Split { .. })
                            if !is_released => {}
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
        granted(&locks, &keys[1], LEASE).await.release().await.unwrap();
    };
    tokio::join!(concerns_one(false), concerns_one(true));
}
