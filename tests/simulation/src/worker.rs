//! One task of a client, which acquires, holds and releases locks again and again.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;
use redlock_core::{
    Dialect, LockError, LockGuard, LockKey, LockManager, LockRequest, MultiGuard, scope,
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::history::Span;
use super::order::FairTurn;
use super::world::{NODE_TIMEOUT, World};

pub(super) struct Worker {
    pub(super) world: Arc<World>,
    pub(super) name: String,
    pub(super) client: usize,
    /// The drift of the client's clock, in millionths.
    pub(super) drift: i32,
    pub(super) locks: LockManager,
    pub(super) random: SmallRng,
}

/// The longest time that the attempts of a caller take beyond its `wait_time`: two rounds of requests to
/// the nodes, and another round that begins at the end of the `wait_time`. A client notices after twice the
/// `node_timeout` that a server has fallen silent between two replies.
const ATTEMPTS: Duration = Duration::from_millis(3 * (2 * 50 + 15) + 10);

/// The longest time until a client notices that a server is silent.
const SILENCE: Duration = Duration::from_millis(2 * 50 + 15);

/// The tolerance for the end of a lease that is not extended: two calculations of it differ by less.
const CLOCK_TICK: Duration = Duration::from_millis(1);

impl Worker {
    pub(super) async fn work(mut self) {
        while self.world.trace.elapsed() < self.world.plan.length {
            self.pause().await;
            self.wait_out_idle_time().await;
            self.turn().await;
        }
    }

    /// Waits for a random time, or in a crowd until the next moment at which all workers begin.
    async fn pause(&mut self) {
        let pause = self.millis(0, 150);
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
        let plan = &self.world.plan;
        let first = self.random.random_range(0..plan.keys);
        // Redisson has no locks of several keys.
        let is_set = plan.dialect == Dialect::Plain && self.random.random_ratio(1, 3);
        let count = if is_set { self.random.random_range(2..=4) } else { 1 };
        let keys = (first..first + count).map(|key| format!("key-{}", key % plan.keys));
        let keys: Vec<_> = keys.collect();
        let lease = plan.leases[self.random.random_range(0..plan.leases.len())];
        let renewed = self.random.random_ratio(1, 4);
        let mut request = self.locks.lock_all(&keys).expire(lease);
        if renewed {
            request = request.renew(true);
        }
        let wait =
            if self.random.random_ratio(1, 2) { self.millis(1, 500) } else { Duration::ZERO };
        if !wait.is_zero() {
            request = request.wait_time(wait);
        }
        // A lock of several keys cannot be fair.
        let fair = count == 1 && self.random.random_ratio(1, 3);
        if fair {
            request = request.fair();
        }
        let fenced = self.random.random_ratio(1, 3);
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
        let begun = Instant::now();
        let acquired = timeout(patience, acquire).await;
        self.record(|| {
            format!("{keys:?}, lease {lease:?}, wait {wait:?}, fair {fair}: {acquired:?}")
        });
        let took = begun.elapsed();
        // A fair caller also asks one node after another for the conductor, up to twice.
        let nodes = u32::try_from(self.world.plan.servers.len()).unwrap();
        let searches = if fair { 2 * nodes * SILENCE } else { Duration::ZERO };
        if fair && again.is_none() && acquired.as_ref().is_ok_and(Result::is_ok) {
            let granted = self.world.trace.elapsed();
            let (key, holder, begun) =
                (keys[0].clone(), self.name.clone(), granted.saturating_sub(took));
            self.world.took_turn(FairTurn { key, holder, begun, granted });
        }
        if took > again.unwrap_or_default() + wait + ATTEMPTS + searches {
            self.violation(&format!(
                "took {took:?} to acquire {keys:?}, with a wait_time of {wait:?}"
            ));
        }
        self.world.count(&acquired);
        match acquired {
            Ok(Ok((guard, number))) => self.hold(guard, number, lease, renewed).await,
            Ok(Err(
                LockError::Contended { .. }
                | LockError::Unavailable { .. }
                | LockError::TimedOut { .. },
            ))
            | Err(_) => {}
            Ok(Err(error)) => self.violation(&format!("got the unexpected error {error:?}")),
        }
    }

    async fn hold(
        &mut self,
        guard: LockGuard,
        number: Option<i64>,
        lease: Duration,
        renewed: bool,
    ) {
        let mut belief = Belief::new(self, guard.handle().keys(), number);
        let longest_hold = self.world.plan.longest_hold;
        let longest = if renewed { longest_hold } else { (lease * 3 / 2).min(longest_hold) };
        // Many holds are short, and some outlast their lease.
        let is_longest = self.random.random_ratio(1, 3);
        let part = if is_longest { 1.0 } else { self.random.random_range(0.0..1.0f64).powi(3) };
        let until = Instant::now() + longest.mul_f64(part);
        loop {
            let left = guard.remaining();
            if left.is_zero() {
                belief.end();
                break;
            }
            belief.continue_for(left);
            tokio::select! {
                biased;
                () = guard.lost() => {}
                () = sleep_until(until.min(belief.until)) => {}
            }
            if Instant::now() >= until {
                break;
            }
        }
        let extends = self.random.random_ratio(1, 5);
        if extends {
            let at_once = self.random.random_ratio(1, 3);
            let pause = if at_once { 0.0 } else { self.random.random_range(0.0..1.2) };
            let pause = lease.min(longest_hold).mul_f64(pause);
            tokio::select! {
                biased;
                () = guard.lost() => belief.end(),
                () = async {
                    if guard.extend(lease).await.is_ok() {
                        belief.continue_for(guard.remaining());
                        sleep_until((Instant::now() + pause).min(belief.until)).await;
                    }
                } => {}
            }
        }
        let was_valid = guard.is_valid();
        if was_valid && belief.was_lost {
            self.violation(&format!("has a valid guard of {} again, after its loss", guard.key()));
        }
        drop(belief);
        let end = self.random.random_range(0..10);
        self.record(|| format!("ends its hold of {} ({end}), valid: {was_valid}", guard.key()));
        match end {
            0..5 => {
                let released = guard.release().await;
                self.record(|| format!("released: {released:?}"));
            }
            5 => {
                let patience = self.millis(0, 20);
                let _ = timeout(patience, guard.release()).await;
            }
            6 if !self.world.plan.has_long_leases() => guard.keep_until_expiry(),
            _ => drop(guard),
        }
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.random_range(from..=to))
    }

    fn record(&self, event: impl FnOnce() -> String) {
        self.world.trace.record(|| format!("{}: {}", self.name, event()));
    }

    fn violation(&self, what: &str) {
        self.world.violation(format!("{} {what}", self.name));
    }
}

async fn acquire(
    request: LockRequest<MultiGuard>,
    fenced: bool,
) -> Result<(LockGuard, Option<i64>), LockError> {
    if fenced {
        let guard = request.fenced().acquire().await?;
        let number = guard.fencing_token().number();
        Ok((guard.into_guard().into_guard(), Some(number)))
    } else {
        request.acquire().await.map(|guard| (guard.into_guard(), None))
    }
}

/// Acquires the lock twice in one scope, the second time after a pause. Returns the first result and drops
/// the other acquisition.
async fn acquire_twice(
    request: &LockRequest<MultiGuard>,
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

/// The belief of a holder that it holds all keys of a lock. It lasts until the end of the validity, the loss of the
/// lock, or the drop of this value.
struct Belief {
    world: Arc<World>,
    keys: Vec<String>,
    /// The span of each key, without the key.
    span: Span,
    drift: i32,
    /// The end of the belief, unless the lease is extended.
    until: Instant,
    was_lost: bool,
}

impl Belief {
    fn new(worker: &Worker, keys: &[LockKey], number: Option<i64>) -> Self {
        let start = worker.world.trace.elapsed();
        let keys = keys.iter().map(|key| key.as_str().to_owned()).collect();
        let (key, holder) = (String::new(), worker.name.clone());
        let client = worker.client;
        let (granted, since, end) = (start, start, start);
        let span = Span { key, holder, client, granted, since, start, end, number };
        let world = Arc::clone(&worker.world);
        Self { world, keys, span, drift: worker.drift, until: Instant::now(), was_lost: false }
    }

    /// Adds a span of each key to the history.
    fn report(&self, span: &Span) {
        for key in &self.keys {
            self.world.believed(Span { key: key.clone(), ..span.clone() });
        }
    }

    /// Ends the belief, because the guard reports that the lock is lost.
    fn end(&mut self) {
        self.until = self.until.min(Instant::now());
        self.was_lost = true;
    }

    /// Continues the belief for the validity that the guard reports, measured on the client's clock.
    fn continue_for(&mut self, left: Duration) {
        let now = Instant::now();
        let until = now + left.div_f64(1.0 + f64::from(self.drift) / 1e6);
        let start = self.world.trace.at(now);
        if self.span.start < start && self.until + CLOCK_TICK < until {
            // An extension begins a new span: a quorum has confirmed the lease again, in spite of earlier
            // faults.
            let next = Span { since: self.span.start, start, number: None, ..self.span.clone() };
            let mut before = std::mem::replace(&mut self.span, next);
            before.end = self.world.trace.at(now.min(self.until));
            self.report(&before);
        }
        self.until = until;
    }
}

impl Drop for Belief {
    fn drop(&mut self) {
        let end = Instant::now().min(self.until);
        self.span.end = self.world.trace.at(end);
        self.report(&self.span);
    }
}

const _: () = assert!(NODE_TIMEOUT.as_millis() == 50, "ATTEMPTS is derived from the node_timeout");
