//! One task of a client, which acquires, holds and releases locks again and again.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;
use redlock_core::{Dialect, FencingToken, LockError, LockGuard, LockManager, LockRequest, scope};
use tokio::time::{Instant, sleep, timeout};

use super::history::Hold;
use super::order::FairTurn;
use super::plan::Plan;
use super::world::{NODE_TIMEOUT, World};

pub(super) struct Worker {
    pub(super) world: Arc<World>,
    pub(super) name: String,
    pub(super) client: usize,
    /// The drift of the client's clock, in millionths.
    pub(super) drift: i32,
    pub(super) locks: LockManager,
    /// When the client drains its locks, as a process does at SIGTERM.
    pub(super) drains_at: Option<Duration>,
    pub(super) random: SmallRng,
}

/// The longest time that the attempts of a caller take beyond its `wait_time`: two rounds of requests to
/// the nodes, and another round that begins at the end of the `wait_time`. A client notices after twice the
/// `node_timeout` that a server has fallen silent between two replies.
const ATTEMPTS: Duration = Duration::from_millis(3 * ROUND + 10);
/// The longest time of a round of requests, in milliseconds.
const ROUND: u64 = 2 * 50 + 15;
/// The repetitions of an attempt whose votes are split, each after a pause.
const REPETITIONS: Duration = Duration::from_millis(6 * (ROUND + 200));
/// The further rounds if callers share locks: an exclusive caller that meets shared holders asks once more. A reader
/// extends the lease of other readers first, or waits for a reader that does so.
const SHARED_ATTEMPTS: Duration = Duration::from_millis(3 * ROUND);

/// The longest time until a client notices that a server is silent.
const SILENCE: Duration = Duration::from_millis(ROUND);

/// A waiting time that is longer than any run.
const NO_LIMIT: Duration = Duration::from_secs(600);

impl Worker {
    pub(super) async fn work(mut self) {
        while self.world.trace.elapsed() < self.world.plan.length {
            self.pause().await;
            self.wait_out_idle_time().await;
            if self.is_draining() {
                drop(self.locks.drain());
            }
            self.turn().await;
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.drains_at.is_some_and(|at| self.world.trace.elapsed() >= at)
    }

    /// Waits for a random time, or in a crowd until the next moment at which all workers begin.
    pub(super) async fn pause(&mut self) {
        let pause = self.millis(0, self.world.plan.longest_pause);
        match self.world.plan.beat {
            None => sleep(pause).await,
            Some(beat) => {
                let now = self.world.trace.elapsed();
                let beats = u32::try_from(now.as_nanos() / beat.as_nanos()).unwrap();
                sleep(((beats + 1) * beat).saturating_sub(now)).await;
            }
        }
    }

    /// Waits until the idle time of the plan is over.
    async fn wait_out_idle_time(&self) {
        let now = self.world.trace.elapsed();
        if let Some(idle) = self.world.plan.idle.as_ref().filter(|idle| idle.contains(&now)) {
            sleep(idle.end.saturating_sub(now)).await;
        }
    }

    async fn turn(&mut self) {
        let world = Arc::clone(&self.world);
        let plan = &world.plan;
        let first = self.random.random_range(0..plan.keys);
        let hold = match plan.sharing {
            Some(sharing) => sharing.choose_hold(&mut self.random),
            None => Hold::Exclusive,
        };
        // Redisson has no locks of several keys, and they have no bound for the waits of their callers.
        let may_be_set = plan.dialect == Dialect::Plain
            && hold == Hold::Exclusive
            && plan.longest_wait.is_none();
        let is_set = may_be_set && self.random.random_ratio(1, 3);
        let count = if is_set { self.random.random_range(2..=4) } else { 1 };
        let keys = (first..first + count).map(|key| format!("key-{}", key % plan.keys));
        let mut keys: Vec<_> = keys.collect();
        keys.sort();
        keys.dedup();
        let lease = plan.leases[self.random.random_range(0..plan.leases.len())];
        let renewed = self.random.random_ratio(1, 4);
        let request = match &keys[..] {
            [key] => self.locks.lock(key),
            keys => self.locks.lock_all(keys),
        };
        let mut request = request.expire(lease);
        request = match hold {
            Hold::Exclusive => request,
            Hold::Reader => request.shared(true),
            Hold::Permit(permits) => request.permits(permits),
        };
        if renewed {
            request = request.renew(true);
        }
        // Zero makes one attempt.
        let wait = self.choose_wait();
        request = request.wait_time(wait);
        // A lock of several keys cannot be fair.
        let fair = count == 1 && self.random.random_ratio(1, 3);
        if fair {
            request = request.fair(true);
        }
        let fenced = self.random.random_ratio(1, 3) && hold == Hold::Exclusive;
        let again = self.random.random_ratio(1, 4).then(|| self.millis(0, 200));
        let acquire = async {
            match again {
                None => acquire(request, fenced).await,
                Some(pause) => acquire_twice(&request.reentrant(true), fenced, pause).await,
            }
        };
        // One caller in eight abandons the acquisition early.
        let patience = self.random.random_ratio(1, 8);
        let patience = if patience { self.millis(0, 80) } else { Duration::from_secs(60) };
        let (begun, is_draining) = (Instant::now(), self.is_draining());
        let is_writer = hold == Hold::Exclusive;
        let waiting: Vec<_> = keys.iter().filter(|_| is_writer).collect();
        let waiting: Vec<_> = waiting.into_iter().map(|key| world.waiting_writer(key)).collect();
        let acquired = timeout(patience, acquire).await;
        if let Ok(Ok(_)) = &acquired {
            for waiting in &waiting {
                waiting.served();
            }
        }
        drop(waiting);
        self.record(|| {
            format!("{keys:?}, {hold:?}, lease {lease:?}, wait {wait:?}, fair {fair}: {acquired:?}")
        });
        let took = begun.elapsed();
        // A fair caller also asks one node after another for the conductor, up to twice.
        let nodes = u32::try_from(plan.servers.len()).unwrap();
        let searches = if fair { 2 * nodes * SILENCE } else { Duration::ZERO };
        if fair && again.is_none() && acquired.as_ref().is_ok_and(Result::is_ok) {
            let granted = world.trace.elapsed();
            let (key, holder, begun) =
                (keys[0].clone(), self.name.clone(), granted.saturating_sub(took));
            world.took_turn(FairTurn { key, holder, begun, granted });
        }
        let longest = plan.longest_wait.map_or(wait, |longest| longest.min(wait));
        if took > again.unwrap_or_default() + longest + plan.attempts() + searches {
            self.violation(&format!(
                "took {took:?} to acquire {keys:?} as {hold:?}, with a wait_time of {wait:?}"
            ));
        }
        world.count(hold, took, &acquired);
        match acquired {
            Ok(Err(LockError::Draining)) if self.is_draining() => {}
            // The worker held nothing before.
            Ok(result) if is_draining => {
                self.violation(&format!("was not refused during a drain: {result:?}"));
            }
            Ok(Ok((guard, number))) => {
                if guard.has_joined() {
                    world.joined();
                }
                self.hold(guard, hold, number, lease, renewed).await;
            }
            Ok(Err(
                LockError::Contended { .. }
                | LockError::Split { .. }
                | LockError::Unavailable { .. }
                | LockError::TimedOut { .. },
            ))
            | Err(_) => {}
            Ok(Err(error)) => self.violation(&format!("got the unexpected error {error:?}")),
        }
    }

    fn choose_wait(&mut self) -> Duration {
        if !self.random.random_ratio(1, 2) {
            Duration::ZERO
        } else if self.world.plan.longest_wait.is_some() && self.random.random_ratio(1, 2) {
            NO_LIMIT
        } else {
            self.millis(1, 500)
        }
    }

    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.random_range(from..=to))
    }

    pub(super) fn record(&self, event: impl FnOnce() -> String) {
        self.world.trace.record(|| format!("{}: {}", self.name, event()));
    }

    pub(super) fn violation(&self, what: &str) {
        self.world.violation(format!("{} {what}", self.name));
    }
}

async fn acquire(
    request: LockRequest,
    fenced: bool,
) -> Result<(LockGuard, Option<i64>), LockError> {
    let guard = request.fenced(fenced).acquire().await?;
    let number = guard.fencing_token().map(FencingToken::number);
    Ok((guard, number))
}

/// Acquires the lock twice in one scope, the second time after a pause. Returns the first result and drops
/// the other acquisition.
async fn acquire_twice(
    request: &LockRequest,
    fenced: bool,
    pause: Duration,
) -> Result<(LockGuard, Option<i64>), LockError> {
    scope(async {
        tokio::select! {
            biased;
            second = async {
                sleep(pause).await;
                acquire(request.clone(), fenced).await
            } => second,
            first = acquire(request.clone(), fenced) => first,
        }
    })
    .await
}

impl Plan {
    fn attempts(&self) -> Duration {
        let repetitions = if self.servers.len() > 1 { REPETITIONS } else { Duration::ZERO };
        let shared = if self.sharing.is_some() { SHARED_ATTEMPTS } else { Duration::ZERO };
        ATTEMPTS + repetitions + shared
    }
}

const _: () = assert!(NODE_TIMEOUT.as_millis() == 50, "ATTEMPTS is derived from the node_timeout");
