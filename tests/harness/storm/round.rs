//! One storm, from the start of the servers to the report.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::client::{Client, Command, Contender};
use super::minority::granted_on_the_minority_side;
use super::network::Network;
use super::node::Node;
use super::report::Report;
use super::{Fault, PASSWORD, Schedule, Strike, Target, USER};
use crate::eventually::eventually;
use crate::history::{History, What, monotonic_nanos};
use crate::redis_server::RedisServer;

/// How long clients may go on undisturbed before the first fault and after the last.
const CALM: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

/// Clients, nodes, and what happens to them.
#[derive(Debug, Clone)]
pub struct Storm {
    /// The `contender` program.
    pub program: PathBuf,
    /// How its clients behave.
    pub client: Client,
    /// What fails when.
    pub schedule: Schedule,
}

/// All that can be struck.
#[derive(Debug)]
struct World {
    nodes: Vec<Mutex<Node>>,
    network: Network,
    clients: Vec<Mutex<Place>>,
    command: Command,
    killed: Mutex<BTreeSet<u32>>,
    /// What clients did wrong that is not in the history.
    violations: Mutex<Vec<String>>,
    /// Whose place each process has had.
    processes: Mutex<HashMap<u32, usize>>,
}

/// A client, and the seed of the one that takes its place.
#[derive(Debug)]
struct Place {
    client: Option<Contender>,
    next_seed: u64,
}

impl Storm {
    /// Lets it rage, and reports.
    ///
    /// # Panics
    ///
    /// When a fault cannot be made.
    pub async fn rage(self) -> Report {
        let Self { program, client, schedule } = self;
        // In memory where that is possible: to wait for a disk would hold the clients up.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a directory for the history");
        let history = History::at(dir.path().join("history"));
        // Without waiting for the disk: what is answered outlives the server, not the machine.
        let options = RedisServer::options()
            .user(USER, PASSWORD)
            .directive("lua-time-limit", "5")
            .directive("appendonly", "yes")
            .directive("appendfsync", "no");
        let servers = join_all((0..schedule.nodes).map(|_| options.clone().start())).await;
        let network = Network::between(schedule.clients, &servers).await;
        let server_urls = servers.iter().map(RedisServer::url).collect();
        let restart_guard = schedule.restart_guard;
        let command =
            Command { program, client, restart_guard, server_urls, history: history.clone() };
        let mut seeds = StdRng::seed_from_u64(schedule.seed);
        let places =
            (0..schedule.clients).map(|_| Place { client: None, next_seed: seeds.random() });
        let world = Arc::new(World {
            clients: places.map(Mutex::new).collect(),
            nodes: servers
                .into_iter()
                .enumerate()
                .map(|(index, server)| Mutex::new(Node::new(index, server)))
                .collect(),
            network,
            command,
            killed: Mutex::default(),
            violations: Mutex::default(),
            processes: Mutex::default(),
        });
        for client in 0..schedule.clients {
            world.start(client, &mut *world.clients[client].lock().await).await;
        }
        world.wait_for_grants().await;

        let begun = Instant::now() + CALM;
        let mut strikes = Vec::new();
        for strike in schedule.strikes.clone() {
            sleep_until(begun + strike.at).await;
            strikes.push(tokio::spawn(Arc::clone(&world).strike(strike)));
        }
        let undone = timeout(PATIENCE, join_all(strikes)).await.expect("faults that end");
        for strike in undone {
            strike.expect("a fault that can be made and undone");
        }
        sleep(CALM).await;

        let mut failures = world.finish().await;
        let killed = world.killed.lock().await.clone();
        failures.append(&mut *world.violations.lock().await);
        for node in &world.nodes {
            failures.extend(node.lock().await.leftovers(&killed).await);
        }
        let events = history.events().expect("a history");
        let processes = world.processes.lock().await;
        let cut_off = world.network.cut_off().await;
        failures.extend(granted_on_the_minority_side(&events, &processes, &cut_off));
        Report::new(&schedule, client, &events, &killed, failures)
    }
}

impl World {
    async fn wait_for_grants(&self) {
        eventually("every client has been granted a lock", PATIENCE, async || {
            let events = self.command.history.events().ok()?;
            let granted = events.iter().filter(|event| matches!(event.what, What::Granted { .. }));
            let processes: BTreeSet<u32> = granted.map(|event| event.process).collect();
            (processes.len() == self.clients.len()).then_some(())
        })
        .await;
    }

    async fn strike(self: Arc<Self>, strike: Strike) {
        let since = monotonic_nanos();
        let isolated = strike.isolated(self.nodes.len(), self.clients.len());
        let Strike { fault, targets, lasts, choice, .. } = strike;
        let name = match (targets.len(), isolated.len()) {
            (2.., 0) if fault.target() != Target::Ways => {
                format!("{fault}, {} at once", targets.len())
            }
            (_, 0) => fault.to_string(),
            (_, clients) => format!("{fault}, {clients} without a quorum"),
        };
        match fault.target() {
            Target::Ways => {
                self.network.strike(fault, &targets, lasts, choice, isolated).await;
            }
            Target::Nodes | Target::Clients => {
                let targets = targets.into_iter();
                join_all(targets.map(|target| self.strike_one(target, fault, lasts, choice))).await;
            }
        }
        self.command.history.note(What::Fault { since, name }).expect("a line in the history");
    }

    async fn strike_one(&self, target: usize, fault: Fault, lasts: Duration, choice: u64) {
        if fault.target() == Target::Nodes {
            let mut node = self.nodes[target].lock().await;
            let violations = node.strike(&self.network, fault, lasts, choice).await;
            self.violations.lock().await.extend(violations);
            return;
        }
        let mut place = self.clients[target].lock().await;
        if fault == Fault::StopClient {
            let client = place.client.as_ref().expect("a client that runs");
            client.stop();
            sleep(lasts).await;
            client.resume();
        } else {
            let killed = place.client.take().expect("a client that runs");
            self.killed.lock().await.insert(killed.id());
            killed.kill();
            sleep(lasts).await;
            self.start(target, &mut place).await;
        }
    }

    async fn start(&self, client: usize, place: &mut Place) {
        let contender = self.command.start(place.next_seed, &self.network.urls(client));
        place.next_seed = place.next_seed.wrapping_add(1);
        self.processes.lock().await.insert(contender.id(), client);
        place.client = Some(contender);
    }

    /// Ends all clients in order.
    async fn finish(&self) -> Vec<String> {
        let finish = self.clients.iter().map(async |client| {
            let client = client.lock().await.client.take().expect("a client that runs");
            client.finish().await.err()
        });
        let forget = async {
            loop {
                for node in &self.nodes {
                    node.lock().await.forget(&self.network).await;
                }
                sleep(CALM).await;
            }
        };
        tokio::select! {
            ended = join_all(finish) => ended.into_iter().flatten().collect(),
            never = forget => never,
        }
    }
}
