//! The errors of a server that was announced name the server. The name of the node says nothing about it, and the node may
//! have another master by then.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use super::played_node::{HELD, LEASE, PlayedCluster, RELEASE, spec};
use crate::error::{NodeError, Vote};
use crate::node::{Action, FairOrder, ProcessId, QueueAction, QueueOp};

const LABEL: &str = "a:1 (announced by the cluster): ";

type Failure = BoxFuture<'static, Option<NodeError>>;

/// Sends an operation of each kind, and returns their futures.
fn send_all(cluster: &PlayedCluster) -> Vec<Failure> {
    let queue = QueueOp::new(&spec(), ProcessId::random(), QueueAction::Refresh);
    let queue = cluster.node.queue(queue).map(Result::err).boxed();
    let vote = |action| {
        let reply = cluster.call(action);
        let failure = reply.map(|reply| match reply.vote {
            Vote::Failed(reason) => Some(reason),
            _ => None,
        });
        failure.boxed()
    };
    let mut calls: Vec<Failure> = [HELD, Action::Extend { lease: LEASE }, RELEASE].map(vote).into();
    calls.push(queue);
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    calls
}

/// Reads the commands of all operations.
async fn read_all(master: &mut DuplexStream) {
    let mut commands = Vec::new();
    while !String::from_utf8_lossy(&commands).contains("\r\nfair\r\n") {
        master.read_buf(&mut commands).await.unwrap();
    }
}

/// Asserts that each operation fails for this reason.
async fn assert_failed(calls: Vec<Failure>, reason: &NodeError) {
    let failures = timeout(LEASE, join_all(calls)).await.unwrap();
    for failure in failures {
        assert_eq!(failure.as_ref(), Some(reason));
    }
}

/// The text of the server contains the words of a label.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_master_of_a_cluster_names_it_and_who_announced_it() {
    for is_moved in [false, true] {
        let mut cluster = PlayedCluster::new();
        let calls = send_all(&cluster);
        if is_moved {
            cluster.move_slot();
        }
        let master = &mut cluster.masters[0];
        read_all(master).await;
        let reply = "-ERR no (announced by nobody)\r\n".repeat(calls.len());
        master.write_all(reply.as_bytes()).await.unwrap();
        let reason = format!("{LABEL}ERR no (announced by nobody)");
        assert_failed(calls, &NodeError::Server(reason.into())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_of_a_master_of_a_cluster_names_it_and_who_announced_it() {
    for is_moved in [false, true] {
        let mut cluster = PlayedCluster::new();
        let calls = send_all(&cluster);
        if is_moved {
            cluster.move_slot();
        }
        read_all(&mut cluster.masters[0]).await;
        // The server closes the connection.
        cluster.masters[0] = tokio::io::duplex(1).0;
        let reason = format!("{LABEL}the server closed the connection");
        assert_failed(calls, &NodeError::ConnectionBroke(reason.as_str().into())).await;
        let later = cluster.master(0).connection().unwrap_err();
        assert_eq!(later, NodeError::NotConnected(reason.into()));
    }
}
