//! Each lock goes to the master of its slot, also while slots move.

use redlock_core::LockError;
use redlock_tests::RedisCluster;

use super::{SOON, connect};

#[tokio::test]
async fn a_lock_is_set_on_the_master_of_its_slot() {
    let cluster = RedisCluster::start().await;
    let locks = connect(&cluster).await;
    assert_eq!(locks.nodes().count(), 1);
    for master in 0..3 {
        let key = cluster.key_on(master, "order").await;
        let guard = locks.lock(&key).try_acquire().await.unwrap();
        assert!(cluster.probe(master).await.time_to_live(&key).await.is_some());
        assert!(locks.lock(&key).try_acquire().await.unwrap_err().is_contended());
        guard.extend(SOON).await.unwrap();
        guard.release().await.unwrap();
        let fenced = locks.lock(&key).fenced(true).try_acquire().await.unwrap();
        fenced.release().await.unwrap();
    }
    assert!(cluster.keys().await.iter().all(|key| key.contains("redlock:fencing")));
}

/// The server would refuse the script. A caller that waits would wait in vain.
#[tokio::test]
async fn keys_of_different_slots_are_refused_before_anything_is_sent() {
    let cluster = RedisCluster::start().await;
    let locks = connect(&cluster).await;
    let mut first = cluster.probe(0).await;
    first.reset_calls().await;
    let error = locks.lock_all(["a", "b", "c"]).wait_time(SOON).acquire().await.unwrap_err();
    let LockError::InvalidOption(invalid) = &error else { panic!("{error:?}") };
    assert_eq!(invalid.option(), "keys");
    for word in ["\"a\"", "\"b\"", "{tag}"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(!first.calls().await.contains_key("evalsha"));
    let guard = locks.lock_all(["{cart}:a", "{cart}:b"]).try_acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// The server answers `MOVED`, and the manager does not know the new owner before.
#[tokio::test]
async fn a_lock_follows_its_slot() {
    let cluster = RedisCluster::start().await;
    let locks = connect(&cluster).await;
    let key = cluster.key_on(0, "order").await;
    let slot = cluster.slot(&key).await;
    let guard = locks.lock(&key).try_acquire().await.unwrap();
    cluster.begin_move(slot, 0, 1).await;
    // The key is still on the source.
    assert!(locks.lock(&key).try_acquire().await.unwrap_err().is_contended());
    cluster.finish_move(slot, 0, 1).await;
    assert!(cluster.probe(1).await.time_to_live(&key).await.is_some());
    guard.extend(SOON).await.unwrap();
    assert!(locks.lock(&key).try_acquire().await.unwrap_err().is_contended());
    guard.release().await.unwrap();
    let guard = locks.lock(&key).try_acquire().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(cluster.keys().await, Vec::<String>::new());
}

/// The source answers `ASK`, because it does not have the key.
#[tokio::test]
async fn a_free_lock_of_a_moving_slot_is_set_on_the_target() {
    let cluster = RedisCluster::start().await;
    let locks = connect(&cluster).await;
    let key = cluster.key_on(0, "order").await;
    let slot = cluster.slot(&key).await;
    cluster.begin_move(slot, 0, 1).await;
    for shared in [false, true] {
        let request = || locks.lock(&key);
        let guard = if shared {
            request().shared(true).try_acquire().await.unwrap()
        } else {
            request().try_acquire().await.unwrap()
        };
        assert!(
            cluster
                .probe(1)
                .await
                .command::<i64>(["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()])
                .await
                == 1
        );
        if !shared {
            assert!(request().try_acquire().await.unwrap_err().is_contended());
        }
        guard.extend(SOON).await.unwrap();
        guard.release().await.unwrap();
    }
    cluster.finish_move(slot, 0, 1).await;
    assert_eq!(cluster.keys().await, Vec::<String>::new());
}
