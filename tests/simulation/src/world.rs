//! One run of the simulation: clients with their workers, servers, the network, and the faults.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use redlock_core::{LockError, LockManager, NodeError, Vote, Votes, simulation};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::history::{self, Hold, Span};
use super::leaders::{Leading, Resource};
use super::network::Network;
use super::operators::{Operations, label_of};
use super::order::{self, FairTurn};
use super::panics;
use super::plan::{Fault, Plan, SLOW, Weakness};
use super::server::Server;
use super::trace::Trace;
use super::waiting_writers::WaitingWriters;
use super::worker::Worker;

pub(super) const NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// The longest time for which a worker goes on after the end of the plan.
const LONGEST_WORK: Duration = Duration::from_secs(10);
/// The longest time that clients need to reconnect to all servers and to release the locks left there.
const SETTLED: Duration = Duration::from_secs(6);

/// The numbers of the events of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) granted: u64,
    pub(super) contended: u64,
    pub(super) unavailable: u64,
    pub(super) given_up: u64,
    pub(super) faults: u64,
    /// Overlaps of two holders that a stepped clock excuses.
    pub(super) excused: u64,
    /// Failed acquisitions in which a server had no vote because its clock was stepped.
    pub(super) stepped: u64,
    /// The writes that have waited for further commands, and contained many.
    pub(super) batches: u64,
    /// The turns of fair callers.
    pub(super) fair: u64,
    /// The grants of shared locks that a holder of another client had.
    pub(super) shared: u64,
    pub(super) downgraded: u64,
    /// The readers that have joined the lock of another one.
    pub(super) joined: u64,
    /// The holders that have lost their lock beside an operator.
    pub(super) removed: u64,
    /// The longest time in which a caller acquired a shared lock, and an exclusive one.
    pub(super) longest_read: Duration,
    pub(super) longest_write: Duration,
    pub(super) leading: Leading,
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) violations: Vec<String>,
    pub(super) counts: Counts,
    pub(super) trace: Vec<String>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) trace: Trace,
    spans: Mutex<Vec<Span>>,
    fair_turns: Mutex<Vec<FairTurn>>,
    violations: Mutex<Vec<String>>,
    counts: Mutex<Counts>,
    pub(super) writers: WaitingWriters,
    /// The resource that leaders write to.
    pub(super) resource: Mutex<Resource>,
    pub(super) operations: Mutex<Operations>,
}

/// Runs the plan of a seed. All events follow from the seed alone.
pub(super) fn run(seed: u64, weakness: Weakness, traced: bool) -> Outcome {
    run_plan(Plan::from_seed(seed, weakness), traced)
}

/// Runs a plan. All events follow from the plan alone.
pub(super) fn run_plan(plan: Plan, traced: bool) -> Outcome {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    panics::watch();
    redlock_logs::watch();
    let _seeded = simulation::seed(plan.seed);
    runtime.block_on(async {
        let world = World {
            plan,
            trace: Trace::new(traced),
            spans: Mutex::default(),
            fair_turns: Mutex::default(),
            violations: Mutex::default(),
            counts: Mutex::default(),
            writers: WaitingWriters::default(),
            resource: Mutex::default(),
            operations: Mutex::default(),
        };
        Arc::new(world).run().await
    })
}

impl World {
    async fn run(self: Arc<Self>) -> Outcome {
        let plan = &self.plan;
        let network = Network::new(plan.seed, plan.latency.clone());
        let start = |(number, clock): (usize, _)| {
            let longest_lease = plan.longest_lease();
            Server::start(number, &network, &self.trace, clock, longest_lease, plan.tracks)
        };
        let servers: Vec<Server> = plan.servers.iter().copied().enumerate().map(start).collect();
        let mut work = JoinSet::new();
        let mut clients = Vec::new();
        for client in 0..plan.clients.len() {
            clients.push(self.start_client(client, &network, &mut work).await);
        }
        // A machine without drift, beside those of the clients.
        let ops = plan.has_operator.then(|| self.connect(clients.len(), 0, &network));
        let ops = OptionFuture::from(ops).await;
        let operate = OptionFuture::from(ops.as_ref().map(|ops| self.operate(ops, &servers)));
        tokio::select! {
            biased;
            () = self.inject_faults(&network, &servers, &clients) => {}
            () = self.watch_writers(&servers) => {}
            Some(()) = operate => {}
        }
        let all_work = async {
            while let Some(done) = work.join_next().await {
                if let Err(error) = done
                    && error.is_panic()
                {
                    self.violation(format!("a caller panicked: {error}"));
                }
            }
        };
        if timeout(LONGEST_WORK, all_work).await.is_err() {
            self.violation("a worker still waits long after the last fault".to_owned());
        }
        sleep(SETTLED + plan.stepped_back()).await;
        self.check_leftovers(&servers, &clients);
        self.give_every_worker_a_turn(&clients).await;
        self.counts.lock().batches = network.batches();
        let spans = std::mem::take(&mut *self.spans.lock());
        self.counts.lock().shared = history::shared_grants(&spans);
        let mut violations = std::mem::take(&mut *self.violations.lock());
        violations.extend(history::violations(spans, |first, second| {
            let is_excused = plan.excuses(first, second);
            self.counts.lock().excused += u64::from(is_excused);
            is_excused || self.has_removed(first, second)
        }));
        let first_fault = plan.faults.first().map_or(Duration::MAX, |(at, _)| *at);
        let apart = Duration::from_millis(2 * plan.latency.end() + 10);
        let turns = std::mem::take(&mut *self.fair_turns.lock());
        self.counts.lock().fair = turns.len() as u64;
        violations.extend(order::overtaken(&turns, first_fault, apart));
        violations.extend(panics::take());
        violations.extend(servers.iter().flat_map(Server::take_violations));
        let leading = self.resource.lock().leading;
        let counts = Counts { leading, ..*self.counts.lock() };
        Outcome { violations, counts, trace: self.trace.take() }
    }

    /// Connects the manager of a client to all servers.
    async fn connect(&self, number: usize, drift: i32, network: &Network) -> LockManager {
        let plan = &self.plan;
        let mut builder = LockManager::builder().node_timeout(NODE_TIMEOUT).dialect(plan.dialect);
        builder = builder.expire(plan.longest_lease());
        if plan.has_operator {
            builder = builder.owner_label(label_of(number));
        }
        if plan.restart_guard {
            builder = builder.restart_guard(plan.longest_lease());
        }
        let url = |server| format!("redis://server-{server}");
        let urls: Vec<String> = (0..plan.servers.len()).map(url).collect();
        let dial = |to: &str| -> Arc<dyn simulation::Dial> {
            let server = urls.iter().position(|url| url == to).expect("the URL of a server");
            Arc::new(network.dial(number, server))
        };
        let (start, rate) = (Instant::now(), 1.0 + f64::from(drift) / 1e6);
        let clock = move || start.elapsed().mul_f64(rate);
        let connected = simulation::connect(builder.urls(&urls), clock, dial).await;
        connected.expect("no fault before the connect")
    }

    async fn start_client(
        self: &Arc<Self>,
        number: usize,
        network: &Network,
        work: &mut JoinSet<()>,
    ) -> Client {
        let plan = &self.plan;
        let drift = plan.clients[number];
        let locks = self.connect(number, drift, network).await;
        // Some clients drain their locks before the end.
        let drains = number == 0
            && plan.seed.is_multiple_of(4)
            && plan.longest_wait.is_none()
            && plan.beat.is_none();
        let drains_at = match plan.leadership {
            // One client after the other.
            Some(_) => Some(plan.leader_drains_at(number)),
            None => drains.then(|| plan.length * 4 / 5),
        };
        let drains = drains_at.is_some();
        let spawn = |index: usize| {
            let seed = plan.seed ^ ((number as u64 + 1) << 32) ^ ((index as u64 + 1) << 48);
            let worker = Worker {
                world: Arc::clone(self),
                name: format!("client {number}, worker {index}"),
                client: number,
                drift,
                locks: locks.clone(),
                drains_at,
                random: SmallRng::seed_from_u64(seed),
            };
            let leadership = plan.leadership;
            work.spawn(async move {
                match leadership {
                    None if worker.world.plan.has_operator => worker.work_beside_operator().await,
                    None => worker.work().await,
                    Some(leadership) if index == 0 => worker.lead(leadership).await,
                    Some(_) => worker.handle().await,
                }
            })
        };
        let workers = (0..plan.workers).map(spawn).collect();
        Client { locks, drains, workers, has_vanished: Mutex::new(false) }
    }

    /// Injects the faults of the plan at their times, and waits until the end of the plan.
    async fn inject_faults(&self, network: &Network, servers: &[Server], clients: &[Client]) {
        let began = Instant::now() - self.trace.elapsed();
        for (at, fault) in &self.plan.faults {
            sleep_until(began + *at).await;
            self.trace.record(|| format!("{fault:?}"));
            self.counts.lock().faults += 1;
            match *fault {
                Fault::Hold { client, server, direction } => {
                    network.hold(client, server, direction);
                }
                Fault::Resume { client, server, direction } => {
                    network.resume(client, server, direction);
                }
                Fault::Slow { client, server, direction } => {
                    network.slow((client, server, direction), Some(SLOW));
                }
                Fault::NormalSpeed { client, server, direction } => {
                    network.slow((client, server, direction), None);
                }
                Fault::Reset { client, server } => network.reset(client, server),
                Fault::Stall { client, server } => network.stall(client, server),
                Fault::Unstall { client, server } => network.unstall(client, server),
                Fault::FlushScripts { server } => servers[server].forget_scripts(),
                Fault::Crash { server } => servers[server].crash(),
                Fault::Restart { server, memory } => servers[server].restart(memory),
                Fault::StepClock { server, by, ends_connections } => {
                    servers[server].step_clock(by);
                    if ends_connections {
                        (0..clients.len()).for_each(|client| network.reset(client, server));
                    }
                }
                Fault::Vanish { client, ends_connections } => {
                    *clients[client].has_vanished.lock() = true;
                    clients[client].workers.iter().for_each(AbortHandle::abort);
                    network.lose(client, ends_connections);
                }
            }
        }
        sleep_until(began + self.plan.length).await;
    }

    /// Lets every worker acquire one lock. Without faults, each of them must get it, unless its client drains.
    async fn give_every_worker_a_turn(&self, clients: &[Client]) {
        let present =
            clients.iter().filter(|client| !client.drains && !*client.has_vanished.lock());
        let turns = present.flat_map(|client| {
            (0..client.workers.len()).map(move |number| {
                let lease = self.plan.longest_lease();
                let request = client.locks.lock("last").expire(lease).wait_time(LONGEST_WORK);
                let request = request.fair(true);
                let is_reader = self.plan.sharing.is_some() && number % 2 == 0;
                if is_reader { request.shared(true) } else { request }
            })
        });
        let turns = turns.map(|request| async move {
            let guard = request.acquire().await?;
            self.trace.record(|| format!("{guard:?}"));
            sleep(Duration::from_millis(5)).await;
            drop(guard);
            Ok::<_, LockError>(())
        });
        for turn in futures_util::future::join_all(turns).await {
            if let Err(error) = turn {
                self.violation(format!("a worker did not get the lock without faults: {error}"));
            }
        }
    }

    /// Checks that the servers have no lock left, and that no live client has a holder or a waiter.
    fn check_leftovers(&self, servers: &[Server], clients: &[Client]) {
        for (number, server) in servers.iter().enumerate() {
            let locks = server.locks();
            if !locks.is_empty() {
                self.violation(format!("locks left on server {number}: {locks:?}"));
            }
        }
        for (number, client) in clients.iter().enumerate() {
            if !*client.has_vanished.lock() && !simulation::is_idle(&client.locks) {
                self.violation(format!("client {number} still has a holder or a waiter"));
            }
        }
    }

    pub(super) fn violation(&self, what: String) {
        self.trace.record(|| format!("VIOLATION: {what}"));
        self.violations.lock().push(what);
    }

    pub(super) fn took_turn(&self, turn: FairTurn) {
        self.fair_turns.lock().push(turn);
    }

    pub(super) fn believed(&self, span: Span) {
        self.trace.record(|| format!("{span:?}"));
        self.spans.lock().push(span);
    }

    pub(super) fn count_removed(&self) {
        self.counts.lock().removed += 1;
    }

    pub(super) fn downgraded(&self) {
        self.counts.lock().downgraded += 1;
    }

    pub(super) fn joined(&self) {
        self.counts.lock().joined += 1;
    }

    pub(super) fn count<T, E>(
        &self,
        hold: Hold,
        took: Duration,
        acquired: &Result<Result<T, LockError>, E>,
    ) {
        if let Ok(Err(error)) = acquired
            && error.votes().is_some_and(names_a_step)
        {
            self.counts.lock().stepped += 1;
            if !self.plan.has_stepped_forward(self.trace.elapsed()) {
                self.violation(format!(
                    "a client reports a clock step that did not happen: {error}"
                ));
            }
        }
        let counts = &mut *self.counts.lock();
        if let Ok(Ok(_)) = acquired {
            let longest = match hold {
                Hold::Exclusive => &mut counts.longest_write,
                Hold::Reader | Hold::Permit(_) => &mut counts.longest_read,
            };
            *longest = took.max(*longest);
        }
        *match acquired {
            Ok(Ok(_)) => &mut counts.granted,
            Ok(Err(LockError::Contended { .. } | LockError::Split { .. })) => &mut counts.contended,
            Ok(Err(_)) => &mut counts.unavailable,
            Err(_) => &mut counts.given_up,
        } += 1;
    }
}

fn names_a_step(votes: &Votes) -> bool {
    let is_one = |vote: &Vote| matches!(vote, Vote::Failed(NodeError::ClockStepped { .. }));
    votes.iter().filter_map(|(_, vote)| vote).any(is_one)
}

struct Client {
    locks: LockManager,
    drains: bool,
    workers: Vec<AbortHandle>,
    has_vanished: Mutex<bool>,
}

impl Counts {
    pub(super) fn add(&mut self, other: Self) {
        let Self { granted, contended, unavailable, given_up, faults, stepped, excused, .. } =
            other;
        let Self { batches, fair, shared, downgraded, joined, removed, .. } = other;
        let Self { longest_read, longest_write, leading, .. } = other;
        self.granted += granted;
        self.contended += contended;
        self.unavailable += unavailable;
        self.given_up += given_up;
        self.faults += faults;
        self.stepped += stepped;
        self.excused += excused;
        self.batches += batches;
        self.fair += fair;
        self.shared += shared;
        self.downgraded += downgraded;
        self.joined += joined;
        self.removed += removed;
        self.longest_read = self.longest_read.max(longest_read);
        self.longest_write = self.longest_write.max(longest_write);
        self.leading.add(leading);
    }
}
