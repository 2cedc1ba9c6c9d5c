//! The status of a cluster.

use std::sync::Arc;
#[cfg(feature = "unstable-simulation")]
use std::time::Duration;

#[cfg(feature = "unstable-simulation")]
use redlock_logs::Logs;
#[cfg(feature = "unstable-simulation")]
use tokio::{runtime::Handle, time::timeout};

use crate::error::NodeError;
#[cfg(feature = "unstable-simulation")]
use crate::node::StatusSender;
use crate::node::{Node, NodeStatus};
use crate::store::redis::played_node::{node, settings};
use crate::store::redis::server::played_server::played_connection;
#[cfg(feature = "unstable-simulation")]
use crate::store::redis::{
    RedisUrl, server::ServerSettings, server::played_redis::PlayedRedis, state::RedisState,
};

/// Otherwise the first locks in the slots of the other masters would fail.
#[tokio::test(start_paused = true)]
async fn a_cluster_is_up_when_each_master_was_reached_or_has_failed() {
    for is_last_up in [true, false] {
        let node = node("redis-cluster://a:1,b:2");
        let state = node.prepare(&settings(None));
        let masters = [(0, "a:1"), (1, "b:2")];
        let masters = masters.map(|(slot, address)| state.map.insert_owner(slot, address));
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
        state.map.insert_owner(2, "c:3");
        assert!(node.status().get().is_up());
    }
}

/// A promotion before the start of the node is no news.
#[cfg(feature = "unstable-simulation")]
#[tokio::test]
async fn the_log_warns_about_a_promotion_that_the_node_has_noticed() {
    const MINUTE: Duration = Duration::from_secs(60);
    let (logs, redis) = (Logs::collect(), PlayedRedis::new());
    redis.change(|fields| fields.former_replication_id = "9999");
    let server = format!("127.0.0.1:{}", redis.listen().await);
    let url = RedisUrl::parse("redis-cluster://a:1").unwrap();
    let status = StatusSender::new(NodeStatus::Connecting);
    let settings = ServerSettings::for_tests(settings(None));
    let state = RedisState::new(url, settings, status.clone(), &Handle::current());
    let owner = state.map.insert_owner(0, &server);
    let count = || {
        let lines = logs.lines().into_iter();
        let words = "a replica was promoted to master";
        lines.filter(|line| line.contains(words) && line.contains(&server)).count()
    };
    let status = status.subscribe();
    timeout(MINUTE, status.wait_for(NodeStatus::is_up)).await.unwrap();
    assert_eq!(count(), 0);
    redis.change(|fields| {
        fields.replication_id = "bbbb";
        fields.former_replication_id = "aaaa";
    });
    let connect_again = async {
        redis.close();
        redis.attempts().wait_for(|attempts| attempts.len() > 1).await.unwrap();
        owner.status().wait_for(NodeStatus::is_up).await;
    };
    timeout(MINUTE, connect_again).await.unwrap();
    assert_eq!(count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_down_when_all_masters_have_failed() {
    let node = node("redis-cluster://a:1,b:2");
    let state = node.prepare(&settings(None));
    let masters = [(0, "a:1"), (1, "b:2")];
    let masters = masters.map(|(slot, address)| state.map.insert_owner(slot, address));
    let reason = NodeError::NotConnected("refused".into());
    masters[0].set(Err(reason.clone()));
    assert_eq!(node.status().get(), NodeStatus::Connecting);
    masters[1].set(Err(reason.clone()));
    assert_eq!(node.status().get(), NodeStatus::Down(reason));
}
