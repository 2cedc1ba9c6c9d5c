//! Keeps the owners of the slots of a cluster up to date.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::cmd;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rand::seq::SliceRandom;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::Map;
use super::topology::{ClusterState, Masters, masters};
use crate::error::NodeError;
use crate::jitter::jitter;
use crate::random::with_random;
use crate::store::kit::pauses::AFTER_REFUSAL;
use crate::store::kit::url::HostPort;
use crate::store::redis::error::node_error;
use crate::store::redis::link::Link;
use crate::store::redis::link::open::Endpoint;
use crate::store::redis::server::Server;
use crate::store::redis::url::Servers;

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
    /// The highest epoch that a server has reported.
    epoch: u64,
    /// The pause after the last reading, if no server has named the owners of the slots.
    pause: Option<Duration>,
}

impl Refresher {
    /// Reads the slots, and replaces the map. Returns whether a server has named the owners of the slots.
    ///
    /// Asks the next server while a server has not replied for a moment.
    async fn refresh(&mut self, map: &Map) -> bool {
        let mut is_refused = true;
        let mut sources = map.slot_sources().into_iter();
        let mut reads = FuturesUnordered::new();
        let mut outdated: Option<(ClusterState, Masters)> = None;
        loop {
            let next = sources.next();
            let is_last = next.is_none();
            reads.extend(next.map(|(address, server)| map.read_slots(address, server)));
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
                    use NodeError::{Credentials, NotPermitted};
                    is_refused &= matches!(error, NotPermitted(_) | Credentials(_));
                    continue;
                }
            };
            self.pause = None;
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
        // If no server has a newer view, the cluster was made anew, or this node reaches only a part of it. A server that
        // is cut off from the majority may still name the masters to a node that knows none.
        let Some((state, masters)) = outdated else {
            let pause = self.pause.map_or(PAUSE_WHILE_DOWN, |last| LONGEST_PAUSE.min(last * 2));
            self.pause = Some(if is_refused { AFTER_REFUSAL } else { pause });
            return false;
        };
        let is_used = state.is_ok != Some(false) || map.owners.load().is_empty();
        if is_used {
            self.epoch = state.epoch.unwrap_or_default();
            map.replace(&masters);
        }
        is_used
    }
}

impl Map {
    /// Returns the servers to ask: first the connected masters, then the other known servers and the servers of the URL.
    fn slot_sources(&self) -> Vec<(HostPort, Option<Arc<Server>>)> {
        let seeds = match &self.url.servers {
            Servers::Cluster { seeds } => &seeds[..],
            _ => &[],
        };
        let mut sources: BTreeMap<_, _> = seeds.iter().map(|seed| (seed.clone(), None)).collect();
        for (address, known) in &*self.servers.lock() {
            let is_connected = known.server.responsive_connection().is_ok();
            let server = is_connected.then(|| Arc::clone(&known.server));
            sources.insert(address.clone(), server);
        }
        let mut sources = Vec::from_iter(sources);
        // In a random order, so that one server with an outdated view does not always come first.
        with_random(|random| sources.shuffle(random));
        sources.sort_by_key(|(_, server)| server.is_none());
        sources
    }

    /// Reads the slots from a server, over a connection of its own if the node has none. Records and returns the reason if
    /// the server does not name them in time.
    async fn read_slots(
        &self,
        address: HostPort,
        server: Option<Arc<Server>>,
    ) -> Result<(ClusterState, Masters), NodeError> {
        let limit = self.settings.node.connect_timeout;
        let read = async {
            if let Some(server) = server {
                read(&server.connection()?.link, &address).await
            } else {
                let endpoint =
                    Endpoint::of(&self.url, &address).announced_by("the URL or the cluster");
                let link = endpoint.open(limit, false, |_| {}).await;
                read(&link.map_err(|error| endpoint.explain(error))?, &address).await
            }
        };
        let read = timeout(limit, read).await.unwrap_or(Err(NodeError::NoReply(limit)));
        read.inspect_err(|error| {
            tracing::debug!(node = %self.settings.voter, server = %address, %error, "cannot read the slots of a cluster");
            *self.problem.lock() = error.clone();
        })
    }
}

/// Reads the slots over a link. Redis 6.2 knows these commands too.
async fn read(link: &Link, address: &HostPort) -> Result<(ClusterState, Masters), NodeError> {
    let state = link.send(cmd("CLUSTER").arg("INFO")).await;
    let slots = link.send(cmd("CLUSTER").arg("SLOTS")).await;
    let state = state.as_ref().map(ClusterState::of).unwrap_or_default();
    let masters = masters(&slots.map_err(|error| node_error(&error))?, address)?;
    if masters.is_empty() {
        return Err(NodeError::Server(format!("{address} knows no owner of a slot").into()));
    }
    Ok((state, masters))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::net::TcpListener;
    use tokio::runtime::Handle;

    use super::*;
    use crate::error::Vote;
    use crate::node::Node;
    use crate::node::{NodeSettings, NodeStatus};
    use crate::store::kit::provider::Provider;
    use crate::store::redis::played_node::{HELD, LEASE, PlayedCluster, call, node, settings};
    use crate::store::redis::server::played_server::serve;

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

    /// Another connection costs more, and its server may be down.
    #[tokio::test(start_paused = true)]
    async fn the_connected_masters_are_asked_first() {
        let cluster = PlayedCluster::new();
        let (map, [first, second]) = (&cluster.state.map, [0, 1].map(|one| cluster.master(one)));
        let is_connected = || {
            // The order is random apart from that.
            let sources = (0..20).map(|_| map.slot_sources());
            let connected = sources.map(|sources| {
                sources.iter().map(|(_, server)| server.is_some()).collect::<Vec<_>>()
            });
            let connected: Vec<_> = connected.collect();
            assert!(connected.iter().all(|one| *one == connected[0]), "{connected:?}");
            connected[0].clone()
        };
        assert_eq!(is_connected(), [true, true]);
        let mut acquire = cluster.call(HELD);
        assert!(futures_util::poll!(&mut acquire).is_pending());
        sleep(2 * LEASE).await;
        assert!(first.connection().is_ok());
        assert_eq!(is_connected(), [true, false], "the first master is silent");
        second.set(Err(NodeError::NotConnected("gone".into())));
        assert_eq!(is_connected(), [false, false]);
    }

    /// The pause after a failure must not delay the readings that operations request.
    #[tokio::test(start_paused = true)]
    async fn the_pause_after_a_failure_ends_with_a_server_that_names_the_slots() {
        let mut cluster = PlayedCluster::new();
        let mut refresher = Refresher::default();
        let map = Arc::clone(&cluster.state.map);
        let down = PAUSE_WHILE_DOWN;
        let slots = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\na\r\n:1\r\n";
        for (reply, pause) in [
            ("-ERR busy\r\n", Some(down)),
            ("-ERR busy\r\n", Some(2 * down)),
            ("-NOPERM no permissions\r\n", Some(AFTER_REFUSAL)),
            (slots, None),
            ("-ERR busy\r\n", Some(down)),
        ] {
            let [first, second] = &mut cluster.masters;
            let play = async |server: &mut DuplexStream| loop {
                serve(server, "INFO", "-ERR unknown command\r\n", || {}).await;
                serve(server, "SLOTS", reply, || {}).await;
            };
            let is_known = tokio::select! {
                is_known = timeout(LEASE, refresher.refresh(&map)) => is_known.unwrap(),
                () = play(first) => unreachable!(),
                () = play(second) => unreachable!(),
            };
            assert_eq!((is_known, refresher.pause), (pause.is_none(), pause), "{reply}");
        }
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
