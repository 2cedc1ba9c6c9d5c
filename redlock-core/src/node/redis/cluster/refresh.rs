//! Keeps the map of the slots and the status of the node up to date.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Cluster;
use super::topology::{ClusterState, Topology, info_command, slots_command};
use crate::error::NodeError;
use crate::jitter::jitter;
use crate::node::redis::RedisNode;
use crate::node::redis::connection::pauses::AFTER_REFUSAL;
use crate::node::redis::error::{node_error, not_connected};
use crate::node::redis::url::HostPort;
use crate::node::{Node, NodeStatus};
use crate::telemetry;

/// The shortest pause between two readings of the slots.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The pause while a master is down: its replica may be promoted at any time.
const PAUSE_WHILE_DOWN: Duration = Duration::from_millis(250);
/// The longest pause after a reading in which no server has named the owners of the slots. The pause doubles after each
/// reading, because each one opens a connection to every server.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a server may take to name the owners of the slots until the next server is asked too.
const HEAD_START: Duration = Duration::from_millis(200);

/// Keeps the map and the status up to date until the node is dropped.
pub(super) async fn keep_up_to_date(cluster: Weak<Cluster>) {
    let mut refresher = Refresher::default();
    loop {
        let Some(current) = cluster.upgrade() else { return };
        let is_known = refresher.refresh(&current).await;

        current.pending_ops.forget_ended();
        current.subscriptions.follow(&current.shards);
        let masters = current.shards.masters();
        current.publish_status(&masters);
        let is_complete = is_known && masters.iter().all(|shard| shard.status().get().is_up());
        let pause = if is_complete { current.shards.settings.refresh } else { PAUSE_WHILE_DOWN };
        let (shortest, pause) =
            refresher.pause.map_or((SHORTEST_PAUSE, pause), |pause| (pause, pause));
        let latest = Instant::now() + pause.mul_f64(jitter(0.75..1.0));
        let earliest = latest.min(Instant::now() + shortest);
        drop(masters);
        let checks = current.check_masters();
        if !wait(&cluster, current, earliest, latest, checks).await {
            return;
        }
    }
}

/// Waits until the slots should be read again: until `latest`, or after a request until `earliest`. Runs `checks`,
/// publishes the status and moves the subscriptions meanwhile. Returns `false` if the node was dropped.
async fn wait(
    cluster: &Weak<Cluster>,
    mut current: Arc<Cluster>,
    earliest: Instant,
    mut latest: Instant,
    checks: BoxFuture<'static, ()>,
) -> bool {
    let mut checks = checks.fuse();
    loop {
        let masters = current.shards.masters();
        current.publish_status(&masters);
        current.subscriptions.follow(&current.shards);
        let mut statuses: FuturesUnordered<_> = masters
            .iter()
            .map(|shard| {
                let (status, was_up) = (shard.status(), shard.status().get().is_up());
                async move { status.wait_for(|status| status.is_up() != was_up).await }
            })
            .collect();
        drop(masters);
        let (is_due, is_requested) = {
            let shards = &current.shards;
            tokio::select! {
                biased;
                () = sleep_until(latest) => (true, false),
                () = shards.refresh_requested() => (false, true),
                () = shards.changed() => (false, false),
                () = &mut checks => (false, false),
                // A shard that has failed may have been replaced by another server.
                Some(status) = statuses.next() => (false, !status.is_up()),
            }
        };
        if is_requested {
            latest = latest.min(earliest);
        }
        drop(current);
        let Some(next) = cluster.upgrade() else { return false };
        current = next;
        if is_due {
            current.publish_status(&current.shards.masters());
            return true;
        }
    }
}

/// Reads the slots from one server after another.
#[derive(Debug, Default)]
struct Refresher {
    /// Rotates the servers, so that one server with an outdated view does not always come first.
    turn: usize,
    /// The highest epoch that a server has reported.
    epoch: u64,
    /// The pause after the last reading, if no server has named the owners of the slots.
    pause: Option<Duration>,
}

/// A server that can name the owners of the slots.
struct SlotSource {
    server: HostPort,
    /// The shard, if the node is connected to the server.
    shard: Option<Arc<RedisNode>>,
}

impl Refresher {
    /// Reads the slots, and replaces the map. Returns whether a server has named the owners of the slots.
    ///
    /// Asks the next server while a server has not replied for a moment.
    async fn refresh(&mut self, cluster: &Cluster) -> bool {
        let (mut is_answered, mut is_refused) = (false, true);
        let mut sources = self.sources(cluster).into_iter();
        let mut reads = FuturesUnordered::new();
        let mut outdated: Option<(ClusterState, Topology)> = None;
        loop {
            let next = sources.next();
            let is_last = next.is_none();
            reads.extend(next.map(|source| source.read_in_time(cluster)));
            let read = tokio::select! {
                biased;
                read = reads.next() => read,
                () = sleep(HEAD_START), if !is_last => continue,
            };
            // Every server was asked.
            let Some(read) = read else { break };
            let (state, topology) = match read {
                Ok(read) => read,
                Err(error) => {
                    is_refused &= matches!(error, NodeError::NotPermitted(_));
                    continue;
                }
            };
            self.pause = None;
            is_answered = true;
            let is_new = state.epoch.is_none_or(|epoch| epoch >= self.epoch);
            if is_new && state.is_ok != Some(false) {
                self.epoch = state.epoch.unwrap_or(self.epoch);
                cluster.shards.replace(&topology);
                return true;
            }
            if outdated.as_ref().is_none_or(|(best, _)| *best < state) {
                outdated = Some((state, topology));
            }
        }
        if !is_answered {
            self.pause = Some(self.next_pause(is_refused));
        }
        // If no server has a newer view, the cluster was made anew, or this node reaches only a part of it. A server that
        // is cut off from the majority may still name the masters to a node that knows none.
        let Some((state, topology)) = outdated else { return false };
        let is_used = state.is_ok != Some(false) || !cluster.shards.is_known();
        if is_used {
            self.epoch = state.epoch.unwrap_or_default();
            cluster.shards.replace(&topology);
        }
        is_used
    }

    /// Returns the pause after a reading in which no server has named the owners of the slots.
    fn next_pause(&self, is_refused: bool) -> Duration {
        if is_refused {
            AFTER_REFUSAL
        } else {
            self.pause.map_or(PAUSE_WHILE_DOWN, |pause| (pause * 2).min(LONGEST_PAUSE))
        }
    }

    /// Returns the servers to ask: first the connected masters, then the other known servers and the servers of the URL.
    fn sources(&mut self, cluster: &Cluster) -> Vec<SlotSource> {
        self.turn = self.turn.wrapping_add(1);
        let (mut connected, mut others) = (Vec::new(), Vec::new());
        for (server, shard) in cluster.shards.servers() {
            if shard.connection().and_then(|open| shard.check_replies(open)).is_ok() {
                connected.push(SlotSource { server, shard: Some(shard) });
            } else {
                others.push(SlotSource { server, shard: None });
            }
        }
        connected.sort_by_key(|source| source.server.to_string());
        if !connected.is_empty() {
            let first = self.turn % connected.len();
            connected.rotate_left(first);
        }
        for seed in cluster.shards.settings.seeds() {
            if !connected.iter().chain(&others).any(|source| source.server == *seed) {
                others.push(SlotSource { server: seed.clone(), shard: None });
            }
        }
        if !others.is_empty() {
            let first = self.turn % others.len();
            others.rotate_left(first);
        }
        connected.extend(others);
        connected
    }
}

impl SlotSource {
    /// Reads the slots. Records and returns the reason if the server does not name them in time.
    async fn read_in_time(self, cluster: &Cluster) -> Result<(ClusterState, Topology), NodeError> {
        let limit = cluster.shards.settings.node.connect_timeout;
        let read = timeout(limit, self.read(cluster)).await;
        let read = read.unwrap_or(Err(NodeError::NoReply(limit)));
        read.inspect_err(|error| cluster.record_problem(&self.server, error.clone()))
    }

    async fn read(&self, cluster: &Cluster) -> Result<(ClusterState, Topology), NodeError> {
        let (state, slots) = if let Some(shard) = &self.shard {
            let connection = shard.connection()?;
            let state = connection.send(&info_command()).await;
            (state, connection.send(&slots_command()).await)
        } else {
            let endpoint = cluster.shards.settings.endpoint(&self.server);
            let limit = cluster.shards.settings.node.connect_timeout;
            let opened = endpoint.open(limit, false, |_, _| {}).await;
            let (link, _) = opened.map_err(|error| not_connected(&error))?;
            (link.send(&info_command()).await, link.send(&slots_command()).await)
        };
        let state = state.as_ref().map(ClusterState::of).unwrap_or_default();
        let slots = slots.map_err(|error| node_error(&error))?;
        let topology = Topology::of(&slots, &self.server)?;
        if topology.masters.is_empty() {
            return Err(NodeError::Server(
                format!("{} knows no owner of a slot", self.server).into(),
            ));
        }
        Ok((state, topology))
    }
}

impl Cluster {
    /// Returns a future that looks for masters that were promoted since their connection was made.
    fn check_masters(&self) -> BoxFuture<'static, ()> {
        let limit = self.shards.settings.node.connect_timeout;
        let checks = self.shards.masters().into_iter().map(|shard| {
            let membership = Arc::clone(&self.shards.membership);
            async move {
                if let Ok(connection) = shard.connection() {
                    // The supervisor ends the connection to a server that does not reply.
                    let _ = timeout(limit, membership.check_again(&connection)).await;
                }
            }
        });
        join_all(checks).map(drop).boxed()
    }

    /// Records why a server has not named the owners of the slots.
    fn record_problem(&self, server: &HostPort, error: NodeError) {
        tracing::debug!(node = %self.name, %server, %error, "cannot read the slots of a cluster");
        let error = match error {
            NodeError::Server(message) if message.contains("cluster support disabled") => {
                NodeError::Server(format!("{server} is no member of a cluster: {message}").into())
            }
            other => other,
        };
        *self.problem.lock() = error;
    }

    /// Publishes the status of the node. The node is up while at least one master is connected. At first it waits
    /// until each master was reached, or has failed.
    fn publish_status(&self, masters: &[Arc<RedisNode>]) {
        let statuses: Vec<NodeStatus> = masters.iter().map(|shard| shard.status().get()).collect();
        let same_server =
            |status: &&NodeStatus| matches!(status, NodeStatus::Down(NodeError::SameServer(_)));
        let before = self.status.subscribe().get();
        let is_first = matches!(before, NodeStatus::Connecting);
        let is_connecting = statuses.iter().any(|status| matches!(status, NodeStatus::Connecting));
        let status = if let Some(same) = statuses.iter().find(same_server) {
            same.clone()
        } else if is_first && is_connecting {
            NodeStatus::Connecting
        } else if statuses.iter().any(NodeStatus::is_up) {
            NodeStatus::Up
        } else if let Some(down) =
            statuses.iter().find(|status| matches!(status, NodeStatus::Down(_)))
        {
            down.clone()
        } else if is_connecting {
            before.clone()
        } else {
            NodeStatus::Down(self.problem.lock().clone())
        };
        if status.is_up() && is_first {
            self.shards.membership.record_start();
        }
        if status != before {
            telemetry::node_up(&self.name, status.is_up());
            self.status.send(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::runtime::Handle;

    use super::super::ClusterNode;
    use super::super::played_cluster::{HELD, LEASE, call, settings};
    use super::*;
    use crate::access::Provider;
    use crate::error::Vote;
    use crate::node::redis::url::RedisUrl;

    /// The provider has to return before the attempt to connect ends.
    #[tokio::test(start_paused = true)]
    async fn a_provider_that_hangs_is_the_reason_of_the_node() {
        let mut settings = settings(None);
        settings.node.connect_timeout = LEASE / 10;
        let hang = Arc::new(|_| std::future::pending().boxed());
        settings.url.login.provider = Some(Provider::Function(hang, "a:1".into()));
        let node = ClusterNode::new(settings);
        node.start(&Handle::current());
        let status = node.status();
        let down = status.wait_for(|status| matches!(status, NodeStatus::Down(_)));
        let status = timeout(LEASE, down).await.unwrap();
        assert!(matches!(status, NodeStatus::Down(NodeError::Credentials(_))), "{status:?}");
    }

    /// Starts a server that answers every command in this way, or closes each connection without an answer. Returns its URL, and the number of connections.
    async fn refusing_server(answer: &'static str) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis-cluster://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut bytes = [0; 1024];
                    while !answer.is_empty()
                        && let Ok(count @ 1..) = socket.read(&mut bytes).await
                    {
                        // A command begins with an asterisk.
                        let commands = bytes[..count].split(|byte| *byte == b'*').count() - 1;
                        let _ = socket.write_all(answer.repeat(commands).as_bytes()).await;
                    }
                });
            }
        });
        (url, connections)
    }

    /// A wrong password must not let every caller of a lock make a connection.
    #[tokio::test]
    async fn servers_that_name_no_slots_are_asked_again_after_pauses() {
        let down = [PAUSE_WHILE_DOWN, 2 * PAUSE_WHILE_DOWN];
        for (answer, pauses, at_least) in [
            ("-WRONGPASS invalid username-password pair\r\n", &[AFTER_REFUSAL][..], 1),
            ("", &down[..], 2),
        ] {
            let (url, connections) = refusing_server(answer).await;
            let mut settings = settings(None);
            settings.url = RedisUrl::parse(&url).unwrap();
            let node = ClusterNode::new(settings);
            let begun = Instant::now();
            node.start(&Handle::current());
            let count = || connections.load(Ordering::Relaxed);
            while count() < at_least || begun.elapsed() < 2 * PAUSE_WHILE_DOWN {
                let vote = call(&node, HELD).await.vote;
                assert!(matches!(vote, Vote::Failed(_)), "{vote:?}");
                sleep(Duration::from_millis(5)).await;
            }
            // Each pause is shortened by a quarter at most.
            let connections = count();
            let shortest =
                pauses[..pauses.len().min(connections - 1)].iter().sum::<Duration>() * 3 / 4;
            let elapsed = begun.elapsed();
            assert!(
                elapsed >= shortest,
                "{connections} connections in {elapsed:?}, {answer}, {:?}",
                node.status().get()
            );
        }
    }
}
