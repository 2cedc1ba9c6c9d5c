//! Waiting for the nodes at the start.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep;

use crate::ballot::Ballot;
use crate::error::{ConnectError, NodeError, Vote, Votes};
use crate::node::NodeStatus;
use crate::quorum::quorum;

/// Once a quorum is up, the other nodes are waited for no longer than the connect timeout divided by this:
/// a node that hangs must not hold up a start.
const LAGGARDS: u32 = 4;

/// Waits until a quorum of nodes is up. Fails when every node has either been reached or has failed to
/// connect once, and no quorum is up.
pub(super) async fn wait_for_quorum(
    ballot: &Ballot,
    connect_timeout: Duration,
) -> Result<(), ConnectError> {
    let is_decided = |status: &NodeStatus| !matches!(status, NodeStatus::Connecting);
    let mut connecting: FuturesUnordered<_> =
        ballot.statuses.iter().map(|status| status.wait_for(is_decided)).collect();
    let mut laggards = std::pin::pin!(None);
    loop {
        let statuses: Vec<_> = ballot.statuses.iter().map(|status| status.get()).collect();
        for (node, status) in ballot.nodes.iter().zip(&statuses) {
            if let NodeStatus::Down(NodeError::SameServer(other)) = status {
                let (first, second) = (Arc::clone(other), Arc::clone(node.name()));
                return Err(ConnectError::SameServer { first, second });
            }
        }
        let connected = statuses.iter().filter(|status| status.is_up()).count();
        let quorum = quorum(statuses.len());
        if connecting.is_empty() {
            return if connected >= quorum {
                Ok(())
            } else {
                Err(ConnectError::Unavailable { connected, quorum, votes: votes(ballot, statuses) })
            };
        }
        if connected >= quorum && laggards.is_none() {
            laggards.set(Some(sleep(connect_timeout / LAGGARDS)));
        }
        match laggards.as_mut().as_pin_mut() {
            None => drop(connecting.next().await),
            Some(timeout) => {
                tokio::select! {
                    biased;
                    _ = connecting.next() => {}
                    () = timeout => return Ok(()),
                }
            }
        }
    }
}

fn votes(ballot: &Ballot, statuses: Vec<NodeStatus>) -> Votes {
    let vote = |status| match status {
        NodeStatus::Up => Some(Vote::Granted),
        NodeStatus::Down(reason) => Some(Vote::Failed(reason)),
        NodeStatus::Connecting => None,
    };
    let names = ballot.nodes.iter().map(|node| Arc::clone(node.name()));
    names.zip(statuses.into_iter().map(vote)).collect()
}
