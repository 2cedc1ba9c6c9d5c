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
use super::{Fault, LONGEST_LEASE, PASSWORD, Schedule, Strike, Target, USER};
use crate::eventually::eventually;
use crate::history::{History, What, monotonic_nanos};
use crate::redis_server::RedisServer;
use crate::scratch::scratch_in_memory;

/// The time without faults before the first fault and after the last one.
const CALM: Duration = Duration::from_millis(100);
/// The time after a fault and a lease, within which every caller gets its lock.
const RECOVERY: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(30);

/// A storm: its clients and its schedule of faults.
#[derive(Debug, Clone)]
pub struct Storm {
    /// The `contender` program.
    pub program: PathBuf,
    /// The behaviour of the clients.
    pub client: Client,
    /// The faults and their times.
    pub schedule: Schedule,
}

/// The targets of the faults, and the records about them.
#[derive(Debug)]
struct World {
    nodes: Vec<Mutex<Node>>,
    network: Network,
    clients: Vec<Mutex<ClientSlot>>,
    command: Command,
    /// The ids of the killed processes.
    killed: Mutex<BTreeSet<u32>>,
    /// Violations that the history does not show.
    violations: Mutex<Vec<String>>,
    /// The index of the client slot of each process, by process id.
    processes: Mutex<HashMap<u32, usize>>,
}

/// The running client of one slot, and the seed for its successor.
#[derive(Debug)]
struct ClientSlot {
    client: Option<Contender>,
    next_seed: u64,
}

impl Storm {
    /// Starts the servers and the clients, makes the faults, ends the clients, and checks the history.
    ///
    /// # Panics
    ///
    /// If a server or a client cannot be started, or a fault cannot be made.
    pub async fn rage(self) -> Report {
        let Self { program, client, schedule } = self;
        let dir = scratch_in_memory();
        let history = History::at(dir.path().join("history"));
        // Without fsync, acknowledged data survives the end of the server, but not a power cut.
        let options = RedisServer::options()
            .user(USER, PASSWORD)
            .directive("lua-time-limit", "5")
            .directive("appendonly", "yes")
            .directive("appendfsync", "no");
        let servers = join_all((0..schedule.nodes).map(|_| options.clone().start())).await;
        let network = Network::between(schedule.clients, &servers).await;
        let server_urls = servers.iter().map(RedisServer::url).collect();
        let restart_guard = schedule.restart_guard;
        let longest = schedule.strikes.iter().map(|strike| strike.lasts).max();
        let patience = longest.unwrap_or_default() + LONGEST_LEASE + RECOVERY;
        let command = Command {
            program,
            client,
            restart_guard,
            failover_margin: None,
            has_sets: true,
            patience,
            server_urls,
            history: history.clone(),
        };
        let mut seeds = StdRng::seed_from_u64(schedule.seed);
        let slots =
            (0..schedule.clients).map(|_| ClientSlot { client: None, next_seed: seeds.random() });
        let world = Arc::new(World {
            clients: slots.map(Mutex::new).collect(),
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
        let results = timeout(PATIENCE, join_all(strikes)).await.expect("all faults end in time");
        for result in results {
            result.expect("a fault that can be made and undone");
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
    /// Waits until every client has got a lock.
    async fn wait_for_grants(&self) {
        eventually("every client has got a lock", PATIENCE, async || {
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
            (2.., 0) if fault.target() != Target::Links => {
                format!("{fault}, {} at once", targets.len())
            }
            (_, 0) => fault.to_string(),
            (_, clients) => format!("{fault}, {clients} without a quorum"),
        };
        match fault.target() {
            Target::Links => {
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
        let mut slot = self.clients[target].lock().await;
        if fault == Fault::StopClient {
            let client = slot.client.as_ref().expect("a client that runs");
            client.stop();
            sleep(lasts).await;
            client.resume();
        } else {
            let killed = slot.client.take().expect("a client that runs");
            self.killed.lock().await.insert(killed.id());
            killed.kill();
            sleep(lasts).await;
            self.start(target, &mut slot).await;
        }
    }

    async fn start(&self, client: usize, slot: &mut ClientSlot) {
        let contender = self.command.start(slot.next_seed, &self.network.urls(client));
        slot.next_seed = slot.next_seed.wrapping_add(1);
        self.processes.lock().await.insert(contender.id(), client);
        slot.client = Some(contender);
    }

    /// Shuts all clients down, and returns the failures. Meanwhile removes keys that no client is to
    /// blame for.
    async fn finish(&self) -> Vec<String> {
        let finish = self.clients.iter().map(async |client| {
            let client = client.lock().await.client.take().expect("a client that runs");
            client.finish().await.err()
        });
        let remove_keys = async {
            loop {
                for node in &self.nodes {
                    node.lock().await.remove_excused_keys(&self.network).await;
                }
                sleep(CALM).await;
            }
        };
        tokio::select! {
            ended = join_all(finish) => ended.into_iter().flatten().collect(),
            never = remove_keys => never,
        }
    }
}
