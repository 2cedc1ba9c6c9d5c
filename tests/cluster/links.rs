//! Slow and broken links to the masters.

use std::time::Duration;

use redlock_core::{LockError, LockManager, NodeError, Vote};
use redlock_tests::Direction::{ToClient, ToServer};
use redlock_tests::Traffic::{Hold, Pass};
use redlock_tests::{Proxy, RedisCluster, eventually};

use super::SOON;

const LEASE: Duration = Duration::from_secs(300);
/// Long enough for a reply that redirects, on a busy machine.
const BRIEF: Duration = Duration::from_secs(1);

/// A cluster whose clients reach each master through a proxy.
struct Network {
    cluster: RedisCluster,
    proxies: Vec<Proxy>,
    locks: LockManager,
}

impl Network {
    async fn start(node_timeout: Duration) -> Self {
        let (cluster, proxies) = RedisCluster::start_proxied().await;
        let url = RedisCluster::url_by(&proxies);
        let builder = LockManager::builder().url(url).expire(LEASE).node_timeout(node_timeout);
        let builder = builder.cluster_refresh(LEASE / 3000).connect_timeout(SOON / 4);
        let locks = builder.connect().await.unwrap();
        Self { cluster, proxies, locks }
    }

    async fn becomes_empty(&self) {
        eventually("no lock is left", SOON, async || {
            self.cluster.keys().await.is_empty().then_some(())
        })
        .await;
    }
}

fn is_silent(error: &LockError) -> bool {
    let votes = error.votes().cloned().unwrap_or_default();
    votes.iter().all(|(_, vote)| matches!(vote, Some(Vote::Failed(NodeError::NoReply(_)))))
}

/// The source has redirected the `SET` to the target, which does not own the slot yet.
#[tokio::test]
async fn a_late_set_on_the_target_of_a_moving_slot_leaves_no_key() {
    let network = Network::start(BRIEF).await;
    let key = network.cluster.key_on(0, "order").await;
    let slot = network.cluster.slot(&key).await;
    network.cluster.begin_move(slot, 0, 1).await;
    network.proxies[1].set(ToServer, Hold);
    let error = network.locks.lock(&key).try_acquire().await.unwrap_err();
    assert!(is_silent(&error), "{error}: {}", error.diagnostics());
    network.proxies[1].set(ToServer, Pass);
    eventually("the held-back `SET` arrives", SOON, async || {
        network.cluster.probe(1).await.calls().await.contains_key("set").then_some(())
    })
    .await;
    network.becomes_empty().await;
}

/// The server sets the lock, its reply is lost, and the lock moves with its slot. The clean-up finds it at the new owner.
#[tokio::test]
async fn a_lock_whose_reply_is_lost_is_removed_after_it_has_moved() {
    let network = Network::start(SOON / 3).await;
    let key = network.cluster.key_on(0, "order").await;
    let slot = network.cluster.slot(&key).await;
    network.proxies[0].set(ToClient, Hold);
    let attempt = tokio::spawn(network.locks.lock(&key).try_acquire());
    let mut probe = network.cluster.probe(0).await;
    eventually("the lock is set, or was", SOON, async || {
        probe.calls().await.contains_key("set").then_some(())
    })
    .await;
    network.cluster.begin_move(slot, 0, 1).await;
    network.cluster.finish_move(slot, 0, 1).await;
    attempt.await.unwrap().unwrap_err();
    // The replies of the first master are still held back, and its connection ends after two node timeouts. The clean-up
    // does not wait for that.
    let empty = tokio::time::timeout(SOON / 3, network.becomes_empty());
    empty.await.expect("the clean-up reaches the new owner");
}
