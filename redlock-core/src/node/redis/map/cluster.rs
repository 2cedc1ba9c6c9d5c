//! Keeps the owners of the slots of a cluster up to date.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::Map;
use super::topology::{ClusterState, Masters, info_command, masters, slots_command};
use crate::error::NodeError;
use crate::jitter::jitter;
use crate::node::redis::error::node_error;
use crate::node::redis::link::open::Endpoint;
use crate::node::redis::server::Server;
use crate::node::redis::server::pauses::AFTER_REFUSAL;
use crate::node::redis::url::{HostPort, Servers};

/// The shortest pause between two readings of the slots.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The pause while a master is down: its replica may be promoted at any time.
const PAUSE_WHILE_DOWN: Duration = Duration::from_millis(250);
/// The longest pause after a reading in which no server has named the owners of the slots. The pause doubles after each
/// reading, because each one opens a connection to every server.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a server may take to name the owners of the slots until the next server is asked too.
const HEAD_START: Duration = Duration::from_millis(200);

/// Keeps the owners up to date. Never completes.
pub(super) async fn keep_up_to_date(map: Arc<Map>) {
    let mut refresher = Refresher::default();
    loop {
        let is_known = refresher.refresh(&map).await;
        map.changed();
        let mut masters = map.masters().into_iter();
        let is_complete = is_known && masters.all(|server| server.status().get().is_up());
        let pause = if is_complete { map.settings.refresh } else { PAUSE_WHILE_DOWN };
        let (shortest, pause) =
            refresher.pause.map_or((SHORTEST_PAUSE, pause), |pause| (pause, pause));
        let latest = Instant::now() + pause.mul_f64(jitter(0.75..1.0));
        sleep_until(latest.min(Instant::now() + shortest)).await;
        // Both outcomes end the pause.
        let _ = timeout_at(latest, map.refresh.notified()).await;
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
    address: HostPort,
    /// The server, if the node is connected to it.
    server: Option<Arc<Server>>,
}

impl Refresher {
    /// Reads the slots, and replaces the map. Returns whether a server has named the owners of the slots.
    ///
    /// Asks the next server while a server has not replied for a moment.
    async fn refresh(&mut self, map: &Map) -> bool {
        let (mut is_answered, mut is_refused) = (false, true);
        let mut sources = self.sources(map).into_iter();
        let mut reads = FuturesUnordered::new();
        let mut outdated: Option<(ClusterState, Masters)> = None;
        loop {
            let next = sources.next();
            let is_last = next.is_none();
            reads.extend(next.map(|source| source.read_in_time(map)));
            let read = tokio::select! {
                biased;
                read = reads.next() => read,
                () = sleep(HEAD_START), if !is_last => continue,
            };
            // Every server was asked.
            let Some(read) = read else { break };
            let (state, masters) = match read {
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
                map.replace(&masters);
                return true;
            }
            if outdated.as_ref().is_none_or(|(best, _)| *best < state) {
                outdated = Some((state, masters));
            }
        }
        if !is_answered {
            self.pause = Some(self.next_pause(is_refused));
        }
        // If no server has a newer view, the cluster was made anew, or this node reaches only a part of it. A server that
        // is cut off from the majority may still name the masters to a node that knows none.
        let Some((state, masters)) = outdated else { return false };
        let is_used = state.is_ok != Some(false) || !map.servers.lock().is_resolved;
        if is_used {
            self.epoch = state.epoch.unwrap_or_default();
            map.replace(&masters);
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
    fn sources(&mut self, map: &Map) -> Vec<SlotSource> {
        self.turn = self.turn.wrapping_add(1);
        let (mut connected, mut others) = (Vec::new(), Vec::new());
        for (address, known) in &map.servers.lock().by_address {
            let (address, server) = (address.clone(), Arc::clone(&known.server));
            if server.responsive_connection().is_ok() {
                connected.push(SlotSource { address, server: Some(server) });
            } else {
                others.push(SlotSource { address, server: None });
            }
        }
        connected.sort_by_key(|source| source.address.to_string());
        if !connected.is_empty() {
            let first = self.turn % connected.len();
            connected.rotate_left(first);
        }
        let seeds = match &map.url.servers {
            Servers::Cluster { seeds } => &seeds[..],
            _ => &[],
        };
        for seed in seeds {
            if !connected.iter().chain(&others).any(|source| source.address == *seed) {
                others.push(SlotSource { address: seed.clone(), server: None });
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
    async fn read_in_time(self, map: &Map) -> Result<(ClusterState, Masters), NodeError> {
        let limit = map.settings.node.connect_timeout;
        let read = timeout(limit, self.read(map)).await;
        let read = read.unwrap_or(Err(NodeError::NoReply(limit)));
        read.inspect_err(|error| map.record_problem(&self.address, error.clone()))
    }

    async fn read(&self, map: &Map) -> Result<(ClusterState, Masters), NodeError> {
        let (state, slots) = if let Some(server) = &self.server {
            let connection = server.connection()?;
            let state = connection.send(&info_command()).await;
            (state, connection.send(&slots_command()).await)
        } else {
            let endpoint = Endpoint::of(&map.url, &self.address);
            let limit = map.settings.node.connect_timeout;
            let link = endpoint.open(limit, false, |_| {}).await?;
            (link.send(&info_command()).await, link.send(&slots_command()).await)
        };
        let state = state.as_ref().map(ClusterState::of).unwrap_or_default();
        let slots = slots.map_err(|error| node_error(&error))?;
        let masters = masters(&slots, &self.address)?;
        if masters.is_empty() {
            return Err(NodeError::Server(
                format!("{} knows no owner of a slot", self.address).into(),
            ));
        }
        Ok((state, masters))
    }
}

impl Map {
    /// Records why a server has not named the owners of the slots.
    fn record_problem(&self, server: &HostPort, error: NodeError) {
        tracing::debug!(node = %self.settings.voter, %server, %error, "cannot read the slots of a cluster");
        let error = match error {
            NodeError::Server(message) if message.contains("cluster support disabled") => {
                NodeError::Server(format!("{server} is no member of a cluster: {message}").into())
            }
            other => other,
        };
        *self.problem.lock() = error;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::runtime::Handle;

    use super::*;
    use crate::access::Provider;
    use crate::error::Vote;
    use crate::node::Node;
    use crate::node::redis::played_node::{HELD, LEASE, call, node, settings};
    use crate::node::{NodeSettings, NodeStatus};

    /// The provider has to return before the attempt to connect ends.
    #[tokio::test(start_paused = true)]
    async fn a_provider_that_hangs_is_the_reason_of_the_node() {
        let settings = NodeSettings { connect_timeout: LEASE / 10, ..settings(None) };
        let node = node("redis-cluster://a:1,b:2");
        let hang = Arc::new(|_| std::future::pending().boxed());
        node.set_provider(Provider::Function(hang, "a:1".into()));
        node.start(&Handle::current(), &settings);
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
            let node = node(&url);
            let begun = Instant::now();
            node.start(&Handle::current(), &settings(None));
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
