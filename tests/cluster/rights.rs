//! The rights that a user needs on the servers of a cluster.

use redlock_core::LockManager;
use redlock_tests::{RedisCluster, RedisServer, builder, eventually};

use super::SOON;

const PASSWORD: &str = "cluster-rights-gnfhq";

/// The rights of the guide, for plain locks of a cluster.
const RIGHTS: &str = "resetchannels ~lock:* &lock:* -@all +set +get +del +pexpire +pttl +time +zadd +zrem +zscore \
    +zrange +zremrangebyscore +pexpireat +publish +evalsha +script|load +subscribe +unsubscribe +info +cluster|slots +cluster|info +asking";

async fn connect(cluster: &RedisCluster, without: &str) -> LockManager {
    redlock_logs::remember_password(PASSWORD);
    let password = format!(">{PASSWORD}");
    let rights = RIGHTS.split_whitespace().filter(|right| *right != without);
    let words = ["ACL", "SETUSER", "app", "reset", "on", &password].into_iter().chain(rights);
    let words: Vec<&str> = words.collect();
    for number in 0..cluster.servers().len() {
        cluster.probe(number).await.command::<()>(&words).await;
    }
    let hosts = cluster.servers().iter().map(RedisServer::port);
    let hosts: Vec<String> = hosts.map(|port| format!("127.0.0.1:{port}")).collect();
    let url = format!("redis-cluster://app:{PASSWORD}@{}", hosts.join(","));
    builder([url]).prefix("lock:").connect().await.unwrap()
}

#[tokio::test]
async fn the_rights_of_the_guide_suffice_while_a_slot_moves() {
    let cluster = RedisCluster::start().await;
    let locks = connect(&cluster, "").await;
    let name = cluster.key_on(0, "lock:order").await;
    let key = name.strip_prefix("lock:").unwrap();
    let slot = cluster.slot(&name).await;
    cluster.begin_move(slot, 0, 1).await;
    let guard = locks.lock(key).try_acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock(key).wait_forever().acquire());
    cluster.finish_move(slot, 0, 1).await;
    guard.extend(SOON).await.unwrap();
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let fenced = locks.lock(key).fenced(true).try_acquire().await.unwrap();
    fenced.release().await.unwrap();
}

#[tokio::test]
async fn a_missing_right_has_the_effect_of_the_guide() {
    let cluster = RedisCluster::start().await;
    let name = cluster.key_on(0, "lock:order").await;
    let key = name.strip_prefix("lock:").unwrap();
    let slot = cluster.slot(&name).await;
    // Locks of slots that do not move work without the right.
    for without in ["+asking", "+cluster|info", "+info"] {
        let locks = connect(&cluster, without).await;
        locks.lock(key).try_acquire().await.unwrap().release().await.unwrap();
    }
    let locks = connect(&cluster, "+asking").await;
    cluster.begin_move(slot, 0, 1).await;
    let error = locks.lock(key).try_acquire().await.unwrap_err();
    assert!(error.diagnostics().to_string().contains("MOVED"), "{}", error.diagnostics());
    cluster.finish_move(slot, 0, 1).await;
    let again = eventually("the lock is available after the move", SOON, async || {
        locks.lock(key).try_acquire().await.ok()
    });
    again.await.release().await.unwrap();
}
