//! One storm, from the start of the servers to the report.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{OptionFuture, join_all};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::test_util::node_tests::TestStores;
use tokio::sync::Mutex;
use tokio::task::{JoinSet, LocalSet, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::client::{Client, ClientSettings, Contender};
use super::minority::granted_on_the_minority_side;
use super::mixed::{start_cluster, start_group};
use super::network::Network;
use super::node::{Node, Servers};
use super::report::Report;
use super::{Fault, LONGEST_LEASE, NodeKind, PASSWORD, Schedule, Strike, Target, USER};
use crate::cluster::RedisCluster;
use crate::eventually::eventually;
use crate::history::{Event, History, What, holds, monotonic_nanos, overlaps};
use crate::nodes::Nodes;
use crate::redis_server::RedisServer;
use crate::scratch::scratch_in_memory;
use crate::sentinel_group::FailoverGroup;

/// The time without faults before the first fault and after the last one.
const CALM: Duration = Duration::from_millis(100);
/// The time after a fault and a lease, within which every caller gets its lock.
const RECOVERY: Duration = Duration::from_secs(5);
/// The time in which two of the nodes fail over, one after the other.
const FAILOVERS: Duration = Duration::from_secs(14);
/// How long a former master may grant locks: `min-replicas-max-lag 1`, and 2 s.
const FAILOVER_MARGIN: Duration = Duration::from_secs(3);
/// The longest time until every client gets locks, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest time from the last fault until all are over: several failovers of a node may be due.
const ALL_FAULTS: Duration = Duration::from_secs(300);

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
    program: PathBuf,
    kind: NodeKind,
    /// The settings that all clients share.
    settings: ClientSettings,
    history: History,
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
        self.run(false).await
    }

    /// As [`rage`](Self::rage), but ends as soon as two processes have held a lock at the same time.
    ///
    /// # Panics
    ///
    /// If a server or a client cannot be started, or a fault cannot be made.
    pub async fn rage_until_overlap(self) -> Report {
        self.run(true).await
    }

    async fn run(self, until_overlap: bool) -> Report {
        let Self { program, client, schedule } = self;
        let dir = scratch_in_memory();
        let history = History::at(dir.path().join("history"));
        let world = Arc::new(World::start(program, client, &schedule, &history).await);
        world.wait_for_grants(0, 1).await;

        let begun = Instant::now() + CALM;
        let local = LocalSet::new();
        let all_strikes = local.run_until(async {
            let mut strikes = JoinSet::new();
            for strike in schedule.strikes.clone() {
                sleep_until(begun + strike.at).await;
                strikes.spawn_local(Arc::clone(&world).strike(strike));
            }
            timeout(ALL_FAULTS, strikes.join_all()).await.expect("all faults end in time");
        });
        let mut failures = Vec::new();
        tokio::select! {
            () = all_strikes => {
                // The clients get locks again.
                world.wait_for_grants(monotonic_nanos(), 5).await;
                failures = world.finish().await;
            }
            () = world.overlap(), if until_overlap => {}
        }
        let killed = world.killed.lock().await.clone();
        let events = history.events().expect("a history");
        if !until_overlap {
            failures.append(&mut *world.violations.lock().await);
            for node in &world.nodes {
                failures.extend(node.lock().await.leftovers(&killed).await);
            }
            let processes = world.processes.lock().await;
            let cut_off = world.network.cut_off().await;
            failures.extend(granted_on_the_minority_side(&events, &processes, &cut_off));
        }
        Report::new(&schedule, client, &events, &killed, failures)
    }
}

impl World {
    /// Starts the servers and the clients.
    async fn start(
        program: PathBuf,
        client: Client,
        schedule: &Schedule,
        history: &History,
    ) -> Self {
        // Without fsync, acknowledged data survives the end of the server, but not a power cut.
        let options = RedisServer::options()
            .user(USER, PASSWORD)
            .directive("lua-time-limit", "5")
            .directive("appendonly", "yes")
            .directive("appendfsync", "no");
        let (count, has_group, has_cluster) = match schedule.kind {
            NodeKind::Servers => (schedule.nodes, false, false),
            NodeKind::Group => (0, true, false),
            NodeKind::Cluster => (0, false, true),
            NodeKind::Mixed => (1, true, true),
            NodeKind::Postgres(..) => (0, false, false),
        };
        let fails_over = has_group || has_cluster;
        let (is_redis, stores) = match schedule.kind {
            NodeKind::Postgres(postgres, redis) => (false, Nodes::postgres(postgres, redis).await),
            _ => (true, Nodes::memory(0)),
        };
        let servers = join_all((0..count).map(|_| options.clone().start())).await;
        let server_urls = servers.iter().map(RedisServer::url).collect();
        let (group, cluster) = tokio::join!(
            OptionFuture::from(has_group.then(start_group)),
            OptionFuture::from(has_cluster.then(start_cluster)),
        );
        let urls =
            [group.as_ref().map(FailoverGroup::url), cluster.as_ref().map(RedisCluster::url)];
        let other_urls = urls.into_iter().flatten().chain(stores.urls()).collect();
        let groups = [group.map(Servers::Group), cluster.map(Servers::Cluster)];
        let network = Network::between(schedule.clients, &servers, other_urls).await;
        let stores = TestStores::from(stores).into_stores().into_iter().map(Servers::Store);
        let nodes = servers.into_iter().map(Servers::One);
        let nodes = nodes.chain(groups.into_iter().flatten()).chain(stores);
        let nodes = nodes.enumerate().map(|(index, servers)| Mutex::new(Node::new(index, servers)));
        let longest = schedule.strikes.iter().map(|strike| strike.lasts).max().unwrap_or_default();
        let failovers = if fails_over || !is_redis { FAILOVERS } else { Duration::ZERO };
        let margin = fails_over && schedule.restart_guard;
        let mut seeds = StdRng::seed_from_u64(schedule.seed);
        let slots =
            (0..schedule.clients).map(|_| ClientSlot { client: None, next_seed: seeds.random() });
        let world = Self {
            clients: slots.map(Mutex::new).collect(),
            nodes: nodes.collect(),
            network,
            program,
            kind: schedule.kind,
            settings: ClientSettings {
                urls: Vec::new(),
                server_urls,
                history: history.path().to_owned(),
                seed: 0,
                client,
                restart_guard: schedule.restart_guard,
                failover_margin: margin.then_some(FAILOVER_MARGIN),
                has_sets: !fails_over && is_redis,
                has_modes: is_redis,
                patience: longest + LONGEST_LEASE + RECOVERY + failovers,
            },
            history: history.clone(),
            killed: Mutex::default(),
            violations: Mutex::default(),
            processes: Mutex::default(),
        };
        for client in 0..schedule.clients {
            world.start_client(client, &mut *world.clients[client].lock().await).await;
        }
        world
    }

    /// Waits until every client has got `count` locks since this time.
    async fn wait_for_grants(&self, since: u64, count: usize) {
        let mut processes = Vec::new();
        for slot in &self.clients {
            processes.extend(slot.lock().await.client.as_ref().map(Contender::id));
        }
        eventually("every client gets locks", PATIENCE, async || {
            let events = self.history.events().ok()?;
            let granted = |process: &u32| {
                let is_grant = |event: &&Event| {
                    let is_grant = matches!(event.what, What::Granted { .. });
                    is_grant && event.process == *process && event.at > since
                };
                events.iter().filter(is_grant).count() >= count
            };
            processes.iter().all(granted).then_some(())
        })
        .await;
    }

    /// Waits until two holds of a lock have overlapped.
    async fn overlap(&self) {
        loop {
            sleep(LONGEST_LEASE).await;
            let history = self.history.clone();
            // The last line may be incomplete.
            let overlaps = move || overlaps(&holds(&history.events().unwrap_or_default()));
            if !spawn_blocking(overlaps).await.expect("a check").is_empty() {
                return;
            }
        }
    }

    async fn strike(self: Arc<Self>, strike: Strike) {
        let since = monotonic_nanos();
        let isolated = strike.isolated(self.nodes.len(), self.clients.len());
        let Strike { fault, targets, lasts, choice, .. } = strike;
        let name = match (targets.len(), isolated.len()) {
            _ if fault.target() == Target::Nodes && self.kind != NodeKind::Servers => {
                format!("{fault:?} of the {}", self.kind.failing_over()[targets[0]].0)
            }
            (2.., 0) if fault.target() != Target::Links => {
                format!("{fault:?}, {} at once", targets.len())
            }
            (_, 0) => format!("{fault:?}"),
            (_, clients) => format!("{fault:?}, {clients} without a quorum"),
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
        self.history.note(What::Fault { since, name }).expect("a line in the history");
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
            self.start_client(target, &mut slot).await;
        }
    }

    async fn start_client(&self, client: usize, slot: &mut ClientSlot) {
        let settings = ClientSettings {
            urls: self.network.urls(client),
            seed: slot.next_seed,
            ..self.settings.clone()
        };
        let contender = Contender::start(&self.program, &settings);
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
        let remove_keys = async || {
            for node in &self.nodes {
                node.lock().await.remove_excused_keys(&self.network).await;
            }
        };
        let keep_removing = async {
            loop {
                remove_keys().await;
                sleep(CALM).await;
            }
        };
        let ended = tokio::select! {
            ended = join_all(finish) => ended,
            never = keep_removing => never,
        };
        // The clients may have ended in the middle of a pass.
        remove_keys().await;
        ended.into_iter().flatten().collect()
    }
}
