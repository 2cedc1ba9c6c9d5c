//! One storm, from the start of the servers to the report.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::client::{Client, Command, Contender};
use super::report::Report;
use super::strike::strike_node;
use super::{Fault, LONGEST_LEASE, Schedule, Strike};
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
    servers: Vec<Mutex<RedisServer>>,
    clients: Vec<Mutex<Place>>,
    command: Command,
    killed: Mutex<BTreeSet<u32>>,
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
        let servers = (0..schedule.nodes)
            .map(|_| RedisServer::options().directive("lua-time-limit", "5").start());
        let servers = join_all(servers).await;
        let urls = servers.iter().map(RedisServer::url).collect();
        let command = Command { program, client, urls, history: history.clone() };
        let mut seeds = StdRng::seed_from_u64(schedule.seed);
        let clients = (0..schedule.clients).map(|_| {
            let seed: u64 = seeds.random();
            let client = Some(command.start(seed));
            Mutex::new(Place { client, next_seed: seed.wrapping_add(1) })
        });
        let world = Arc::new(World {
            clients: clients.collect(),
            servers: servers.into_iter().map(Mutex::new).collect(),
            command,
            killed: Mutex::default(),
        });
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
        let Strike { fault, targets, lasts, .. } = strike;
        let name = match targets.len() {
            1 => fault.to_string(),
            several => format!("{fault}, {several} at once"),
        };
        join_all(targets.into_iter().map(|target| self.strike_one(target, fault, lasts))).await;
        self.command.history.note(What::Fault { since, name }).expect("a line in the history");
    }

    async fn strike_one(&self, target: usize, fault: Fault, lasts: Duration) {
        if !fault.strikes_clients() {
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
            place.client = Some(self.command.start(place.next_seed));
            place.next_seed = place.next_seed.wrapping_add(1);
        }
    }

    /// Ends all clients in order.
    async fn finish(&self) -> Vec<String> {
        let finish = self.clients.iter().map(async |client| {
            let client = client.lock().await.client.take().expect("a client that runs");
            client.finish().await.err()
        });
        join_all(finish).await.into_iter().flatten().collect()
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
                    key.strip_prefix("own:").and_then(|own| own.split(':').next()?.parse().ok());
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
