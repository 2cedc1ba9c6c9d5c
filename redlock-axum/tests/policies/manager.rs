//! Policies that do not fit the manager of their layer.

use std::time::Duration;

use http::Method;
use redlock_axum::{LockLayer, LockManager, LockManagerBuilder, LockPolicy, MemoryNode};
use redlock_logs::Logs;

use crate::support::table;
use crate::support::voting_node::VotingNode;

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the mistake in the second policy of a table, without the name of the policy.
fn mistake(locks: &LockManager, policy: LockPolicy) -> String {
    let policies = [LockPolicy::new("a").route("/a"), policy.route("/b/{id}")];
    let mistake = LockLayer::table(locks, policies).unwrap_err().to_string();
    mistake.strip_prefix("lock policy 2 (/b/{id}): ").expect("the name of the policy").to_owned()
}

async fn of_three_nodes() -> LockManager {
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let builder = nodes.iter().fold(LockManager::builder(), LockManagerBuilder::memory_node);
    builder.connect().await.unwrap()
}

#[tokio::test]
async fn permits_on_several_nodes_are_a_mistake() {
    let mistake = mistake(&of_three_nodes().await, LockPolicy::new("b:{id}").permits(3));
    assert!(
        mistake.starts_with("permits is 3, but must be unset for a manager with 3 nodes"),
        "{mistake}"
    );
}

#[tokio::test]
async fn a_lease_that_is_longer_than_the_restart_guard_is_a_mistake() {
    let builder = LockManager::builder().memory_node(&MemoryNode::new());
    let locks = builder.restart_guard(MINUTE).connect().await.unwrap();
    let policy = |lease| LockPolicy::new("b:{id}").expire(lease);
    assert_eq!(
        mistake(&locks, policy(2 * MINUTE)),
        "expire is 120s, but must be at most 60s, the longest lease of the restart_guard"
    );
    let _ = table(&locks, [policy(MINUTE).route("/{id}")]);
}

#[tokio::test]
async fn a_lease_that_is_longer_than_a_node_grants_is_a_mistake() {
    let node = VotingNode::new(|| redlock_axum::Vote::Agreed).longest_lease(MINUTE);
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    assert_eq!(
        mistake(&locks, LockPolicy::new("b:{id}").expire(2 * MINUTE)),
        "expire is 120s, but must be from 10ms to 60s, the leases that all nodes grant"
    );
}

/// The node has no capability.
#[tokio::test]
async fn an_option_that_a_node_does_not_support_is_a_mistake() {
    let node = VotingNode::new(|| redlock_axum::Vote::Agreed);
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    let policy = || LockPolicy::new("b:{id}");
    let refused = "is true, but must be unset: the node voting does not support";
    for (policy, start) in [
        (policy().shared(true), "shared"),
        (policy().shared_on([Method::GET]), "shared_on is GET, which shares the lock: shared"),
        (policy().fair(true), "fair"),
        (policy().fenced(true), "fenced"),
    ] {
        let expected = format!("{start} {refused}");
        let mistake = mistake(&locks, policy);
        assert!(mistake.starts_with(&expected), "{mistake}");
    }
}

#[tokio::test]
async fn keys_that_differ_only_in_types_are_logged_with_both_places() {
    let locks = LockManager::in_memory();
    let with = |key: &str, route: &str| LockPolicy::new(key).route(route);
    let warnings = |policies: [LockPolicy; 2]| {
        let logs = Logs::collect();
        let _ = table(&locks, policies);
        logs.lines()
    };
    for (one, other) in [
        ("order:{id}", "order:{id:u64}"),
        ("order:{id:lower}:{query(a:b)}", "order:{id}:{query(a:b):i64}"),
        ("{header(x-user):uuid}", "{header(x-user):lower}"),
        ("{{{id}}}:{{a:b}}", "{{{id:u64}}}:{{a:b}}"),
    ] {
        let policies = [with(one, "/a/{id}"), with(other, "/b/{id}").methods([Method::POST])];
        let lines = warnings(policies);
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in ["WARN", "/a/{id} and POST /b/{id}", one, other, "route=\"/b/{id}\""] {
            assert!(lines[0].contains(part), "{part}: {lines:?}");
        }
    }
    for (one, other) in [
        ("order:{id}", "order:{id}"),
        ("order:{id:u64}", "cart:{id}"),
        ("order:u64", "order"),
        ("{query(a:b)}:{id}", "{query(a:c)}:{id}"),
        ("{{shop:u64}}:{id}", "{{shop:i64}}:{id}"),
    ] {
        assert_eq!(warnings([with(one, "/a/{id}"), with(other, "/b/{id}")]), Vec::<String>::new());
    }
}
