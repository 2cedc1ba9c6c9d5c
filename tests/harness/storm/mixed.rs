//! Nodes of several servers in a storm: a Sentinel group and a Redis Cluster.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::Fault;
use crate::cluster::RedisCluster;
use crate::eventually::eventually;
use crate::redis_server::RedisServer;
use crate::sentinel_group::FailoverGroup;

/// The longest time for a failover, on a machine that is busy with other tests.
const FAILOVER: Duration = Duration::from_secs(60);
/// After this time, a replica that has not become the master asks for votes again.
const VOTE: Duration = Duration::from_secs(6);
/// The number of servers in half of a cluster. The replica of a server, or its master, is in the other half.
const MASTERS: usize = 3;
/// A former master refuses writes after a second without its replicas.
const REPLICATED: [(&str, &str); 2] =
    [("min-replicas-to-write", "1"), ("min-replicas-max-lag", "1")];

pub(super) async fn start_group() -> FailoverGroup {
    let options = FailoverGroup::options();
    let add = |options: crate::GroupOptions, (name, value)| options.directive(name, value);
    REPLICATED.into_iter().fold(options, add).start().await
}

pub(super) async fn start_cluster() -> RedisCluster {
    let options = RedisServer::options();
    let add = |options: crate::RedisOptions, (name, value)| options.directive(name, value);
    RedisCluster::start_with(&REPLICATED.into_iter().fold(options, add), 1).await
}

/// Makes a fault that lasts for a promotion and the time `lasts`, and waits until the group is complete again.
pub(super) async fn strike_group(
    group: &mut FailoverGroup,
    fault: Fault,
    lasts: Duration,
    choice: usize,
) {
    let master = group.master().await;
    match fault {
        Fault::KillMaster => {
            group.servers[master].kill();
            group.promoted_after(master).await;
            group.servers[master].restart().await;
        }
        Fault::FreezeMaster => {
            group.servers[master].freeze();
            group.promoted_after(master).await;
            sleep(lasts).await;
            group.servers[master].thaw();
        }
        Fault::FailOver => {
            group.fail_over().await;
        }
        Fault::KillSentinel => {
            let sentinel = choice % group.sentinels.len();
            group.sentinels[sentinel].kill();
            sleep(lasts).await;
            group.sentinels[sentinel].restart().await;
        }
        _ => group.servers[master].probe().await.disconnect_others().await,
    }
    group.settle().await;
}

/// Makes a fault that lasts for a promotion and the time `lasts`, and waits until the cluster is complete again.
pub(super) async fn strike_cluster(
    cluster: &mut RedisCluster,
    fault: Fault,
    lasts: Duration,
    choice: usize,
) {
    if fault == Fault::MoveSlot {
        let key = format!("hot:{}", choice % 4);
        let (slot, from) = (cluster.slot(&key).await, cluster.owner(&key).await);
        let to = master_of(cluster, (from + 1) % MASTERS).await;
        cluster.begin_move(slot, from, to).await;
        sleep(lasts).await;
        return cluster.finish_move(slot, from, to).await;
    }
    let master = master_of(cluster, choice % MASTERS).await;
    let replica = (master + MASTERS) % (2 * MASTERS);
    match fault {
        Fault::KillMaster => {
            cluster.servers_mut()[master].kill();
            becomes_master(cluster, replica).await;
            cluster.servers_mut()[master].restart().await;
        }
        Fault::FreezeMaster => {
            cluster.servers_mut()[master].freeze();
            becomes_master(cluster, replica).await;
            sleep(lasts).await;
            cluster.servers_mut()[master].thaw();
        }
        _ => fail_over(cluster, replica).await,
    }
    cluster.become_replica(master).await;
    cluster.become_complete().await;
}

async fn is_master(cluster: &RedisCluster, server: usize) -> bool {
    let info: String = cluster.probe(server).await.command(["INFO", "replication"]).await;
    info.contains("role:master")
}

/// Returns the master of a pair: this server, or the one with this number in the other half.
async fn master_of(cluster: &RedisCluster, pair: usize) -> usize {
    if is_master(cluster, pair).await { pair } else { pair + MASTERS }
}

/// Makes a replica ask for votes until it is the master.
///
/// A replica gives up after five seconds without a majority, and does not try again. The masters vote once for the
/// replicas of a master within two node timeouts. See `clusterHandleSlaveFailover` of the server.
async fn fail_over(cluster: &RedisCluster, replica: usize) {
    eventually("the replica wins a vote", FAILOVER, async || {
        let begin = ["CLUSTER", "FAILOVER", "FORCE"];
        // The server refuses this command when it is a master.
        let _ = cluster.probe(replica).await.try_command::<()>(begin).await;
        timeout(VOTE, becomes_master(cluster, replica)).await.ok()
    })
    .await;
}

async fn becomes_master(cluster: &RedisCluster, replica: usize) {
    eventually("the replica is promoted", FAILOVER, async || {
        is_master(cluster, replica).await.then_some(())
    })
    .await;
}

/// Returns the masters of a cluster.
pub(super) async fn masters(cluster: &RedisCluster) -> Vec<&RedisServer> {
    let masters = join_all((0..MASTERS).map(|pair| master_of(cluster, pair))).await;
    masters.into_iter().map(|master| &cluster.servers()[master]).collect()
}
