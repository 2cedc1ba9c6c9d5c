//! Shared locks, permits, fair callers and the checks of a cluster at the start.

use std::time::Duration;

use redlock_core::{ConnectError, LockManager, NodeError, Vote};
use redlock_tests::{RedisCluster, RedisServer, eventually};

use super::{SOON, builder, connect};

/// Readers share a lock, and permits are counted, on each master.
#[tokio::test]
async fn readers_and_permits_are_counted_on_each_master() {
    let cluster = RedisCluster::start().await;
    let (locks, other) = (connect(&cluster).await, connect(&cluster).await);
    for master in 0..3 {
        let key = cluster.key_on(master, "catalogue").await;
        let readers = [
            locks.lock(&key).shared(true).try_acquire().await.unwrap(),
            other.lock(&key).shared(true).try_acquire().await.unwrap(),
        ];
        assert!(locks.lock(&key).try_acquire().await.unwrap_err().is_contended());
        for reader in readers {
            reader.release().await.unwrap();
        }
        let holder = locks.lock(&key).permits(1).try_acquire().await.unwrap();
        assert!(other.lock(&key).permits(1).try_acquire().await.unwrap_err().is_contended());
        holder.release().await.unwrap();
    }
    assert_eq!(cluster.keys().await, Vec::<String>::new());
}

/// The queue lies in the slot of its lock, and the messages reach both processes. The slot moves while they wait.
#[tokio::test]
async fn fair_callers_get_the_lock_in_their_order_while_the_slot_moves() {
    let cluster = RedisCluster::start().await;
    let (locks, other) = (connect(&cluster).await, connect(&cluster).await);
    let key = cluster.key_on(0, "door").await;
    let slot = cluster.slot(&key).await;
    let holder = locks.lock(&key).fair(true).try_acquire().await.unwrap();
    let mut waiting = Vec::new();
    for (number, manager) in [&other, &locks, &other].into_iter().enumerate() {
        let request = manager.lock(&key).fair(true).wait_forever();
        waiting.push(tokio::spawn(request.acquire()));
        eventually("the caller is in the queue", SOON, async || {
            let queue =
                cluster.keys().await.into_iter().find(|name| name.contains("redlock:fair"))?;
            let (_, queue) = queue.split_once('/')?;
            let owner = cluster.owner(&key).await;
            let tickets: Vec<String> =
                cluster.probe(owner).await.command(["ZRANGE", queue, "0", "-1"]).await;
            let tickets = tickets.iter().filter(|member| member.contains(':')).count();
            (tickets > number).then_some(())
        })
        .await;
    }
    cluster.begin_move(slot, 0, 1).await;
    cluster.finish_move(slot, 0, 1).await;
    holder.release().await.unwrap();
    for (number, caller) in waiting.into_iter().enumerate() {
        let guard = tokio::time::timeout(SOON, caller).await.unwrap().unwrap().unwrap();
        assert_eq!(guard.keys()[0].as_str(), key, "{number}");
        guard.release().await.unwrap();
    }
    eventually("nothing is left", SOON, async || cluster.keys().await.is_empty().then_some(()))
        .await;
}

/// The release is published at the new owner of the slot, and the waiter hears of it without a poll.
#[tokio::test]
async fn a_waiter_is_woken_after_the_slot_has_moved() {
    let cluster = RedisCluster::start().await;
    let (locks, other) = (connect(&cluster).await, connect(&cluster).await);
    let key = cluster.key_on(0, "order").await;
    let slot = cluster.slot(&key).await;
    let subscribers = async |master: usize| -> usize {
        let (_, count): (String, usize) =
            cluster.probe(master).await.command(["PUBSUB", "NUMSUB", &key]).await;
        count
    };
    let holder = locks.lock(&key).try_acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock(&key).wait_forever().acquire());
    eventually("the waiter has subscribed at the owner", SOON, async || {
        (subscribers(0).await == 1).then_some(())
    })
    .await;
    cluster.begin_move(slot, 0, 1).await;
    cluster.finish_move(slot, 0, 1).await;
    eventually("the subscription has moved too", SOON, async || {
        (subscribers(1).await == 1 && subscribers(0).await == 0).then_some(())
    })
    .await;
    holder.release().await.unwrap();
    tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap().release().await.unwrap();
}

/// One cluster has one vote.
#[tokio::test]
async fn a_cluster_that_is_listed_twice_is_refused() {
    let cluster = RedisCluster::start().await;
    let ports: Vec<u16> = cluster.servers().iter().map(RedisServer::port).collect();
    let part = |port: u16| format!("redis-cluster://127.0.0.1:{port}");
    for second in [part(ports[1]), format!("redis://127.0.0.1:{}", ports[1])] {
        let twice = builder(&cluster).url(&second).connect().await.unwrap_err();
        assert!(matches!(twice, ConnectError::SameServer { .. }), "{second}: {twice}");
    }
    redlock_tests::connect([part(ports[2])]).await;
}

#[tokio::test]
async fn a_server_without_cluster_mode_is_a_failed_vote_with_its_reason() {
    let server = RedisServer::start().await;
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    let error = redlock_tests::builder([&url]).connect().await.unwrap_err();
    let ConnectError::Unavailable { votes, .. } = &error else { panic!("{error}") };
    let [(_, Some(Vote::Failed(NodeError::Server(reason))))] = votes.iter().collect::<Vec<_>>()[..]
    else {
        panic!("{votes}")
    };
    assert!(reason.contains("cluster support disabled"), "{reason}");
    for (url, word) in [("redis-cluster://a/x", "database"), ("redis-cluster://", "host")] {
        let error = LockManager::connect([url]).await.unwrap_err();
        assert!(matches!(error, ConnectError::InvalidUrl { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

/// A server that has forgotten the scripts gets them again.
#[tokio::test]
async fn forgotten_scripts_are_loaded_again_on_each_master() {
    let cluster = RedisCluster::start().await;
    let locks = connect(&cluster).await;
    for master in 0..3 {
        let key = cluster.key_on(master, "order").await;
        let guard = locks.lock(&key).fenced(true).try_acquire().await.unwrap();
        cluster.probe(master).await.command::<()>(["SCRIPT", "FLUSH"]).await;
        guard.extend(Duration::from_secs(60)).await.unwrap();
        cluster.probe(master).await.command::<()>(["SCRIPT", "FLUSH"]).await;
        guard.release().await.unwrap();
    }
}
