//! The new owner of a slot takes the closures of its former owner over.

use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use tokio::time::{Instant, advance};

use crate::error::{NodeError, Vote};
use crate::store::kit::gate::Closures;
use crate::store::kit::url::HostPort;
use crate::store::redis::played_node::{HELD, LEASE, PlayedCluster};
use crate::store::redis::server::played_server::played_connection;

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
        cluster.master(0).gate.close(if is_promoted {
            Closures::after_promotion(LEASE, MARGIN, Instant::now())
        } else {
            Closures::after_restart(LEASE, None, None)
        });
        let before = refusal(&cluster);
        assert!(before.is_some());
        cluster.move_slot();
        assert_eq!(refusal(&cluster), before);
        // The quarantine outlasts the connection.
        advance(MARGIN / 2).await;
        let (connection, server) = played_connection();
        let owner = cluster.master(1);
        owner.set(Ok(Arc::new(connection)));
        cluster.masters[1] = server;
        assert_eq!(owner.gate.check_extensions().is_err(), is_promoted);
        advance(MARGIN / 2).await;
        assert_eq!(owner.gate.check_extensions(), Ok(()));
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
            let down = Err(NodeError::NotConnected("gone".into()));
            cluster.master(0).set(down);
            if by_redirect {
                cluster.move_slot();
            } else {
                let server = HostPort { host: "b".into(), port: 2 };
                cluster.state.map.replace(&vec![(0..=16_383, server)]);
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
