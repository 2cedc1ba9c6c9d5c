//! Quarantines the new owner of a slot whose former owner may have forgotten locks.
//!
//! A master in quarantine may have forgotten a lock that is held. If its slot moves to another master, that master does
//! not know the lock either. So the quarantine goes with the slot: the new owner grants no locks, in none of its slots,
//! until the quarantine of the former owner would have ended.
//!
//! If this node is not connected to the former owner, it does not know whether that server has forgotten locks, or
//! whether a replica was promoted in between and has handed the slot on. Then the new owner is treated like a master that
//! was promoted now.

use std::sync::Arc;

use tokio::time::Instant;

use super::generation::ClusterMembership;
use crate::node::redis::RedisNode;
use crate::node::redis::delayed_restart::quarantine::{Quarantine, Quarantines};

/// Quarantines the new owner of a slot, if its former owner may have forgotten locks. Without a restart guard it does
/// nothing.
pub(super) fn take_over(
    membership: &ClusterMembership,
    former: Option<&Arc<RedisNode>>,
    owner: &RedisNode,
) {
    let Some(longest_lease) = owner.settings.restart_guard else { return };
    let connected = former.and_then(|former| former.check_replies(former.connection().ok()?).ok());
    let quarantines = connected.map_or_else(
        || {
            let margin =
                owner.settings.failover_margin.unwrap_or_else(|| membership.longest_margin());
            Quarantine::after_promotion(longest_lease, margin, Instant::now()).into()
        },
        |connection| connection.quarantines(),
    );
    warn(owner, &quarantines);
    owner.take_over(quarantines);
}

fn warn(owner: &RedisNode, quarantines: &Quarantines) {
    let name = owner.route.name();
    if let Err(reason) = quarantines.check()
        && let Some(suppressed) = owner.log_limit.admit("take-over", name)
    {
        tracing::warn!(
            node = %name, %reason, suppressed,
            "a master got a slot of a master that may have forgotten held locks, and is quarantined"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::poll;
    use tokio::time::advance;

    use super::super::played_cluster::{HELD, LEASE, PlayedCluster};
    use super::super::topology::Topology;
    use super::*;
    use crate::error::{NodeError, Vote};
    use crate::node::redis::ConnectionState;
    use crate::node::redis::connection::played_server::played_connection;
    use crate::node::redis::url::HostPort;

    const MARGIN: Duration = Duration::from_secs(16);

    /// Returns the reason why a lock of the cluster is refused before the operation is sent.
    fn refusal(cluster: &PlayedCluster) -> Option<NodeError> {
        match &cluster.call(HELD).as_ready()?.vote {
            Vote::Failed(reason) => Some(reason.clone()),
            vote => panic!("{vote:?}"),
        }
    }

    /// The operator moves the slot of a lock that its restarted or promoted master has forgotten.
    #[tokio::test(start_paused = true)]
    async fn a_slot_takes_the_quarantine_of_its_master_along() {
        for is_promoted in [false, true] {
            let mut cluster = PlayedCluster::with_restart_guard(Some(LEASE));
            cluster.shard(0).connection().unwrap().start(if is_promoted {
                Quarantine::after_promotion(LEASE, MARGIN, Instant::now())
            } else {
                Quarantine::new(LEASE, Instant::now(), None)
            });
            let before = refusal(&cluster);
            assert!(before.is_some());
            cluster.move_slot();
            assert_eq!(refusal(&cluster), before);
            // The quarantine outlasts the connection.
            advance(MARGIN / 2).await;
            let (connection, server) = played_connection();
            let owner = cluster.shard(1);
            owner.set(ConnectionState::Up(Arc::new(connection)));
            cluster.masters[1] = server;
            let connection = owner.connection().unwrap();
            assert_eq!(connection.may_extend().is_err(), is_promoted);
            advance(MARGIN / 2).await;
            assert_eq!(connection.may_extend(), Ok(()));
            assert!(refusal(&cluster).is_some());
            advance(LEASE / 2).await;
            assert_eq!(refusal(&cluster).is_some(), is_promoted);
            advance(MARGIN).await;
            assert_eq!(refusal(&cluster), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_of_a_master_without_connection_counts_as_promoted_with_its_new_master() {
        for restart_guard in [None, Some(LEASE)] {
            for by_redirect in [true, false] {
                let cluster = PlayedCluster::with_restart_guard(restart_guard);
                let down = ConnectionState::Down(NodeError::NotConnected("gone".into()));
                cluster.shard(0).set(down);
                if by_redirect {
                    cluster.move_slot();
                } else {
                    let server = HostPort { host: "b".into(), port: 2 };
                    let masters = vec![(0..=16_383, server)];
                    let topology = Topology { masters, replicas: Vec::new() };
                    cluster.node.cluster.shards.replace(&topology);
                }
                let reason = refusal(&cluster);
                let is_promoted = matches!(reason, Some(NodeError::Promoted { .. }));
                assert_eq!(is_promoted, restart_guard.is_some(), "{reason:?}");
                advance(LEASE + MARGIN).await;
                assert_eq!(refusal(&cluster), None);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_slot_of_a_silent_master_is_quarantined() {
        let cluster = PlayedCluster::with_restart_guard(Some(LEASE));
        let mut acquire = cluster.call(HELD);
        assert!(poll!(&mut acquire).is_pending());
        tokio::time::sleep(2 * LEASE).await;
        cluster.move_slot();
        assert!(matches!(refusal(&cluster), Some(NodeError::Promoted { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_of_a_master_that_has_forgotten_nothing_moves_at_once() {
        let cluster = PlayedCluster::with_restart_guard(Some(LEASE));
        cluster.move_slot();
        assert_eq!(refusal(&cluster), None);
    }
}
