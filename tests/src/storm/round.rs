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
use super::report::Report;
use super::strike::strike_node;
use super::{Fault, LONGEST_LEASE, Schedule, Strike, Target};
use crate::eventually::eventually;
use crate::history::{History, What, monotonic_nanos};
use crate::redis_server::RedisServer;

/// How long clients may go on undisturbed before the first fault and after the last.
const CALM: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

/// What the keys begin with that only one client acquires, and gives up.
const OWN_KEYS: &str = "own:";

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
    servers: Vec<Mutex<RedisServer>>,
    network: Network,
    clients: Vec<Mutex<Place>>,
    command: Command,
    killed: Mutex<BTreeSet<u32>>,
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
            .directive("lua-time-limit", "5")
            .directive("appendonly", "yes")
            .directive("appendfsync", "no");
        let servers = join_all((0..schedule.nodes).map(|_| options.clone().start())).await;
        let network = Network::between(schedule.clients, &servers).await;
        let server_urls = servers.iter().map(RedisServer::url).collect();
        let command = Command { program, client, server_urls, history: history.clone() };
        let mut seeds = StdRng::seed_from_u64(schedule.seed);
        let places =
            (0..schedule.clients).map(|_| Place { client: None, next_seed: seeds.random() });
        let world = Arc::new(World {
            clients: places.map(Mutex::new).collect(),
            servers: servers.into_iter().map(Mutex::new).collect(),
            network,
            command,
            killed: Mutex::default(),
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
        failures.extend(world.leftovers(&killed).await);
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
        let isolated = strike.isolated(self.servers.len(), self.clients.len());
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
                join_all(targets.map(|target| self.strike_one(target, fault, lasts))).await;
            }
        }
        self.command.history.note(What::Fault { since, name }).expect("a line in the history");
    }

    async fn strike_one(&self, target: usize, fault: Fault, lasts: Duration) {
        if fault.target() == Target::Nodes {
            return strike_node(&mut *self.servers[target].lock().await, fault, lasts).await;
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
                self.forget_overtaken().await;
                sleep(CALM).await;
            }
        };
        tokio::select! {
            ended = join_all(finish) => ended.into_iter().flatten().collect(),
            never = forget => never,
        }
    }

    /// Removes the keys that a request has set which outlived its connection: they keep others out
    /// for their lease, which is longer than anybody wants to wait here.
    async fn forget_overtaken(&self) {
        for (node, server) in self.servers.iter().enumerate() {
            let keys = self.network.overtaken(node, OWN_KEYS).await;
            let server = server.lock().await;
            let mut probe = server.probe().await;
            for key in keys {
                // None has no deadline, or it stays here, and is found.
                if probe.command::<i64>(["PTTL", &key]).await > 0 {
                    probe.command::<()>(["DEL", &key]).await;
                }
            }
        }
    }

    /// What is on the nodes that should not be.
    async fn leftovers(&self, killed: &BTreeSet<u32>) -> Vec<String> {
        let mut found = Vec::new();
        for server in &self.servers {
            let server = server.lock().await;
            let mut probe = server.probe().await;
            for key in probe.keys().await {
                let left: i64 = probe.command(["PTTL", &key]).await;
                let owner =
                    key.strip_prefix(OWN_KEYS).and_then(|own| own.split(':').next()?.parse().ok());
                let excused = match owner {
                    None if key == "redlock:fencing" => true,
                    Some(owner) => killed.contains(&owner),
                    // Of a client that was killed, or kept on purpose: it runs out in time.
                    None => {
                        u128::try_from(left).is_ok_and(|left| left <= LONGEST_LEASE.as_millis())
                    }
                };
                if left != -2 && !excused {
                    found.push(format!("left behind on {}: {key} for {left} ms", server.port()));
                }
            }
        }
        found
    }
}
