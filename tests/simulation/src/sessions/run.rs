//! One run: clients with their workers, the ensemble, and the faults.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redlock_core::{FencingToken, LockError, LockGuard, LockManager, simulation};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::ensemble::{Ensemble, TIMEOUT};
use super::node::SessionNode;
use super::plan::{Fault, Plan, Weakness};
use crate::history::{self, Hold, Span};
use crate::panics;
use crate::trace::Trace;

/// The longest time that a worker goes on after the last fault, or that an ensemble needs until nothing is left.
const SETTLED: Duration = Duration::from_secs(10);

/// The numbers of the events of a run.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) granted: u64,
    /// The guards that were not valid until the end of the hold.
    pub(super) lost: u64,
    /// The grants and the extensions that the evidence did not cover.
    pub(super) unproven: u64,
    /// The places in a queue that an acquisition has taken over.
    pub(super) taken: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: Self) {
        let Self { granted, lost, unproven, taken } = other;
        self.granted += granted;
        self.lost += lost;
        self.unproven += unproven;
        self.taken += taken;
    }
}

pub(super) struct Outcome {
    pub(super) violations: Vec<String>,
    pub(super) counts: Counts,
    pub(super) trace: Vec<String>,
}

struct World {
    plan: Plan,
    trace: Trace,
    is_over: Mutex<bool>,
    spans: Mutex<Vec<Span>>,
    violations: Mutex<Vec<String>>,
    counts: Mutex<Counts>,
}

/// Runs the plan of a seed. All events follow from the seed alone.
pub(super) fn run(seed: u64, weakness: Weakness, traced: bool) -> Outcome {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    panics::watch();
    redlock_logs::watch();
    let _seeded = simulation::seed(seed);
    runtime.block_on(async {
        let world = World {
            plan: Plan::from_seed(seed, weakness),
            trace: Trace::new(traced),
            is_over: Mutex::default(),
            spans: Mutex::default(),
            violations: Mutex::default(),
            counts: Mutex::default(),
        };
        Arc::new(world).run().await
    })
}

impl World {
    async fn run(self: Arc<Self>) -> Outcome {
        let plan = &self.plan;
        let ensemble = Ensemble::start(SmallRng::seed_from_u64(plan.seed), plan.is_limited);
        let (mut nodes, mut clients, mut work) = (Vec::new(), Vec::new(), JoinSet::new());
        for (client, drift) in plan.clients.iter().enumerate() {
            let rate = 1.0 + f64::from(*drift) / 1e6;
            let node = SessionNode::start(client, &ensemble, plan.weakness, rate);
            let builder = LockManager::builder().node(node.clone()).expire(TIMEOUT / 2);
            let start = Instant::now();
            let clock = move || start.elapsed().mul_f64(rate);
            let connected = simulation::connect(builder, clock, |_| unreachable!("no URL")).await;
            let locks = connected.expect("no fault before the connect");
            for index in 0..plan.workers {
                let seed = plan.seed ^ (client as u64 + 1) << 32 ^ (index as u64 + 1) << 48;
                let worker = Worker {
                    world: Arc::clone(&self),
                    name: format!("client {client}, worker {index}"),
                    client,
                    rate,
                    locks: locks.clone(),
                    random: SmallRng::seed_from_u64(seed),
                };
                work.spawn(worker.work());
            }
            nodes.push(node);
            clients.push(locks);
        }
        for (before, fault) in &plan.faults {
            sleep(*before).await;
            self.trace.record(|| format!("{fault:?}"));
            match *fault {
                Fault::PauseClient(client, time) => nodes[client].pause(time),
                Fault::PauseServer(server, time) => ensemble.pause(server, time),
                Fault::Cut(client) => ensemble.cut(client),
            }
        }
        *self.is_over.lock() = true;
        let all_work = async { while work.join_next().await.is_some() {} };
        if timeout(SETTLED, all_work).await.is_err() {
            self.violation("a worker still waits long after the last fault".to_owned());
        }
        sleep(SETTLED).await;
        let left = ensemble.locks();
        if !left.is_empty() || !clients.iter().all(simulation::is_idle) {
            self.violation(format!("locks, holders or waiters are left: {left:?}"));
        }
        for locks in &clients {
            let acquired = locks.lock("key-0").wait_time(SETTLED).acquire().await;
            if let Err(error) = acquired {
                self.violation(format!("no lock after the last fault: {error}"));
            }
        }
        for node in &nodes {
            let (unproven, taken) = node.counts();
            self.counts.lock().add(Counts { unproven, taken, ..Counts::default() });
        }
        let mut violations = std::mem::take(&mut *self.violations.lock());
        let spans = std::mem::take(&mut *self.spans.lock());
        violations.extend(history::violations(spans, |_, _| false));
        violations.extend(panics::take());
        Outcome { violations, counts: *self.counts.lock(), trace: self.trace.take() }
    }

    fn violation(&self, what: String) {
        self.trace.record(|| format!("VIOLATION: {what}"));
        self.violations.lock().push(what);
    }
}

/// One task of a client, which acquires, holds and releases locks again and again.
struct Worker {
    world: Arc<World>,
    name: String,
    client: usize,
    rate: f64,
    locks: LockManager,
    random: SmallRng,
}

impl Worker {
    async fn work(mut self) {
        while !*self.world.is_over.lock() {
            sleep(Duration::from_millis(self.random.random_range(0..=100))).await;
            let key = format!("key-{}", self.random.random_range(0..self.world.plan.keys));
            let lease = TIMEOUT.mul_f64(self.random.random_range(0.1..=0.5));
            let waits = self.random.random_ratio(2, 3);
            let wait =
                Duration::from_millis(if waits { self.random.random_range(1..=3000) } else { 0 });
            let renewed = self.random.random_ratio(1, 3);
            let request = self.locks.lock(&key).expire(lease).fenced(true).renew(renewed);
            let acquired = request.wait_time(wait).acquire().await;
            let record =
                || format!("{}: {key}, lease {lease:?}, wait {wait:?}: {acquired:?}", self.name);
            self.world.trace.record(record);
            match acquired {
                Ok(guard) => self.hold(key, guard, lease, renewed).await,
                Err(
                    LockError::Contended { .. }
                    | LockError::Split { .. }
                    | LockError::Unavailable { .. }
                    | LockError::TimedOut { .. },
                ) => {}
                Err(error) => self.world.violation(format!("unexpected error {error:?}")),
            }
        }
    }

    /// Holds a lock for a random time, and records how long its guard was valid.
    async fn hold(&mut self, key: String, guard: LockGuard, lease: Duration, renewed: bool) {
        let start = self.world.trace.elapsed();
        let number = guard.fencing_token().map(FencingToken::number);
        let part = if renewed { 0.0..3.0 } else { 0.0..1.5 };
        let until = Instant::now() + lease.mul_f64(self.random.random_range(part));
        let end = loop {
            let now = Instant::now();
            let valid = now + guard.remaining().div_f64(self.rate);
            if valid <= now || until <= now {
                break now;
            }
            tokio::select! {
                biased;
                _ = guard.lost() => {}
                () = sleep_until(until.min(valid)) => {}
            }
        };
        let was_lost = !guard.is_valid();
        let end = self.world.trace.at(end);
        let counts = &mut *self.world.counts.lock();
        counts.granted += 1;
        counts.lost += u64::from(was_lost);
        let (holder, client, hold) = (self.name.clone(), self.client, Hold::Exclusive);
        let (granted, since, leased) = (start, start, start);
        let span = Span { key, holder, client, hold, granted, since, leased, start, end, number };
        self.world.trace.record(|| format!("{span:?}"));
        self.world.spans.lock().push(span);
        drop(guard);
    }
}
