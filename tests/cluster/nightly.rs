//! Features of Valkey 9 alone: several databases in a cluster, and slots that move as a whole.

use redlock_core::LockManager;
use redlock_tests::{RedisCluster, RedisServer, eventually};

use super::SOON;

/// Starts a cluster with sixteen databases, and a manager in each of two databases.
async fn start() -> (RedisCluster, [LockManager; 2]) {
    let options = RedisServer::options().directive("cluster-databases", "16");
    let cluster = RedisCluster::start_with(&options, 0).await;
    let connect = async |database: u32| {
        let builder = redlock_tests::builder([format!("{}/{database}", cluster.url())]);
        builder.connect().await.unwrap()
    };
    let managers = [connect(0).await, connect(1).await];
    (cluster, managers)
}

#[tokio::test]
async fn a_lock_in_another_database_of_a_cluster_moves_with_its_slot() {
    let (cluster, [first, second]) = start().await;
    let key = cluster.key_on(0, "order").await;
    let in_first = first.lock(&key).expire(SOON).try_acquire().await.unwrap();
    let mut in_second = second.lock(&key).expire(SOON).fenced(true).try_acquire().await.unwrap();
    let (slot, target) = (cluster.slot(&key).await.to_string(), cluster.id(1).await);
    for owner in [1, 0] {
        let id = if owner == 1 { target.clone() } else { cluster.id(0).await };
        let waiting = tokio::spawn(second.lock(&key).fenced(true).wait_time(SOON).acquire());
        let mut probe = cluster.probe(1 - owner).await;
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE", &id];
        probe.command::<()>(words).await;
        eventually("the slot has moved", SOON, async || {
            (cluster.owner(&key).await == owner).then_some(())
        })
        .await;
        cluster.become_complete().await;
        in_first.extend(SOON).await.unwrap();
        in_second.extend(SOON).await.unwrap();
        let token = in_second.fencing_token().unwrap();
        assert!(first.lock(&key).try_acquire().await.unwrap_err().is_contended());
        in_second.release().await.unwrap();
        in_second = waiting.await.unwrap().unwrap();
        assert!(in_second.fencing_token().unwrap() > token);
    }
    in_first.release().await.unwrap();
    in_second.release().await.unwrap();
}

#[tokio::test]
async fn a_move_to_a_server_with_fewer_databases_fails_and_the_lock_stays() {
    let (cluster, [_, locks]) = start().await;
    let key = cluster.key_on(0, "order").await;
    let guard = locks.lock(&key).expire(SOON).try_acquire().await.unwrap();
    let other = RedisServer::options().directive("databases", "1").start().await;
    let mut probe = cluster.probe(0).await;
    probe.command::<()>(["SELECT", "1"]).await;
    let port = other.port().to_string();
    let moved = ["MIGRATE", "127.0.0.1", &port, &key, "1", "5000"];
    let error = probe.try_command::<()>(moved).await.unwrap_err().to_string();
    assert!(error.contains("DB index is out of range"), "{error}");
    guard.extend(SOON).await.unwrap();
    assert!(locks.lock(&key).try_acquire().await.unwrap_err().is_contended());
    guard.release().await.unwrap();
}
