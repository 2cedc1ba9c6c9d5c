//! For which nodes a caller waits after a round without a quorum.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::attempt::tests::attempt;
use super::tests::Setup;
use crate::error::{NodeError, Vote};
use crate::node::fake::FakeMode;

const SHORT: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(1);

fn lost() -> Vote {
    Vote::Failed(NodeError::NotConnected("refused".into()))
}

fn forbidden() -> Vote {
    Vote::Failed(NodeError::NotPermitted("SET".into()))
}

/// Lets the nodes that have voted like this connect again, each after its time. Returns whether another round may find a
/// quorum, and how long that took.
async fn reconnect(
    setup: &Setup,
    votes: [Vote; 3],
    after: [Option<Duration>; 3],
) -> (bool, Duration) {
    for (node, time) in setup.nodes.iter().zip(after) {
        node.set_reconnects_after(time);
    }
    let nodes = setup.ballot.nodes.iter().map(|node| Arc::clone(node.name()));
    let votes = nodes.zip(votes.map(Some)).collect();
    let begun = Instant::now();
    let may_succeed = setup.ballot.reconnect(attempt("order:42").spec(), &votes, LIMIT).await;
    (may_succeed, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_until_so_many_nodes_are_back_that_there_may_be_a_quorum() {
    let (granted, broke) = (Vote::Agreed, Vote::Failed(NodeError::ConnectionBroke("reset".into())));
    for (votes, after, expected) in [
        ([lost(), lost(), granted.clone()], [Some(SHORT), Some(LIMIT / 2), None], (true, SHORT)),
        ([lost(), lost(), lost()], [Some(SHORT), None, Some(2 * SHORT)], (true, 2 * SHORT)),
        ([broke, forbidden(), granted.clone()], [Some(SHORT), None, None], (true, SHORT)),
        ([lost(), lost(), granted.clone()], [None, None, None], (false, Duration::ZERO)),
        ([lost(), lost(), granted], [Some(2 * LIMIT), None, None], (false, LIMIT)),
    ] {
        let outcome = reconnect(&Setup::new(3), votes.clone(), after).await;
        assert_eq!(outcome, expected, "{votes:?} {after:?}");
    }
}

/// The other nodes would fail again, so the caller learns the failure at once.
#[tokio::test(start_paused = true)]
async fn a_caller_does_not_wait_for_nodes_that_cannot_give_a_quorum() {
    let silent = || Vote::Failed(NodeError::NoReply(SHORT));
    let held = || Vote::held(None);
    for votes in [
        [lost(), forbidden(), forbidden()],
        [lost(), silent(), silent()],
        // A quorum has voted, and would vote like this again.
        [lost(), held(), held()],
        [held(), held(), held()],
    ] {
        let outcome = reconnect(&Setup::new(3), votes.clone(), [Some(SHORT); 3]).await;
        assert_eq!(outcome, (false, Duration::ZERO), "{votes:?}");
    }
}

/// A server that has just started is loading its data.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_an_operation_may_be_back_if_its_node_is_down() {
    for (mode, expected) in
        [(FakeMode::Down, (true, SHORT)), (FakeMode::Unreachable, (false, Duration::ZERO))]
    {
        let setup = Setup::new(3);
        setup.nodes[0].set(mode);
        let loading = Vote::Failed(NodeError::Server("LOADING".into()));
        let votes = [loading, forbidden(), Vote::Agreed];
        assert_eq!(reconnect(&setup, votes, [Some(SHORT); 3]).await, expected, "{mode:?}");
    }
}
