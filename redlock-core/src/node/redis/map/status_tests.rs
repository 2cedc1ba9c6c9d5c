//! The status of a cluster.

use std::sync::Arc;

use crate::error::NodeError;
use crate::node::redis::played_node::{node, settings};
use crate::node::redis::server::played_server::played_connection;
use crate::node::{Node, NodeStatus};

/// Otherwise the first locks in the slots of the other masters would fail.
#[tokio::test(start_paused = true)]
async fn a_cluster_is_up_when_each_master_was_reached_or_has_failed() {
    for is_last_up in [true, false] {
        let node = node("redis-cluster://a:1,b:2");
        let shared = node.prepare(&settings(None));
        let masters = [(0, "a:1"), (1, "b:2")];
        let masters = masters.map(|(slot, address)| shared.map.insert_owner(slot, address));
        let (connection, _first) = played_connection();
        masters[0].set(Ok(Arc::new(connection)));
        assert_eq!(node.status().get(), NodeStatus::Connecting);
        let (connection, _second) = played_connection();
        masters[1].set(if is_last_up {
            Ok(Arc::new(connection))
        } else {
            Err(NodeError::NotConnected("refused".into()))
        });
        assert!(node.status().get().is_up());
        // Later the masters that are connected suffice.
        shared.map.insert_owner(2, "c:3");
        assert!(node.status().get().is_up());
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_down_when_all_masters_have_failed() {
    let node = node("redis-cluster://a:1,b:2");
    let shared = node.prepare(&settings(None));
    let masters = [(0, "a:1"), (1, "b:2")];
    let masters = masters.map(|(slot, address)| shared.map.insert_owner(slot, address));
    let reason = NodeError::NotConnected("refused".into());
    masters[0].set(Err(reason.clone()));
    assert_eq!(node.status().get(), NodeStatus::Connecting);
    masters[1].set(Err(reason.clone()));
    assert_eq!(node.status().get(), NodeStatus::Down(reason));
}
