//! One task of a client: it acquires, holds and gives back, again and again.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;
use redlock_core::{LockError, LockGuard, LockManager, LockRequest, scope};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::history::Span;
use super::world::{NODE_TIMEOUT, World};

pub(super) struct Worker {
    pub(super) world: Arc<World>,
    pub(super) name: String,
    pub(super) client: usize,
    /// The drift of its client's clock, in millionths.
    pub(super) drift: i32,
    pub(super) locks: LockManager,
    pub(super) random: SmallRng,
}

/// How long a caller's attempts may take beyond the time that the caller is ready to wait: two
/// questions to the nodes, and one that was begun at the end of the waiting. A server that falls silent
/// between two replies is noticed after twice the `node_timeout`.
const ASKING: Duration = Duration::from_millis(3 * (2 * 50 + 15) + 10);

/// What is left of a lease that nobody extends differs by less from one look at it to the next.
const CLOCK_TICK: Duration = Duration::from_millis(1);

impl Worker {
    pub(super) async fn work(mut self) {
        while self.world.trace.elapsed() < self.world.plan.length {
            let pause = self.millis(0, 150);
            sleep(pause).await;
            self.idle().await;
            self.turn().await;
        }
    }

    /// Lets the time pass in which nobody does anything.
    async fn idle(&self) {
        let now = self.world.trace.elapsed();
        if let Some(idle) = self.world.plan.idle.as_ref().filter(|idle| idle.contains(&now)) {
            sleep(idle.end.saturating_sub(now)).await;
        }
    }

    async fn turn(&mut self) {
        let plan = &self.world.plan;
        let key = format!("key-{}", self.random.random_range(0..plan.keys));
        let lease = plan.leases[self.random.random_range(0..plan.leases.len())];
        let renewed = self.random.random_ratio(1, 4);
        let mut request = self.locks.lock(&key).expire(lease);
        if renewed {
            request = request.renew(true);
        }
        let wait =
            if self.random.random_ratio(1, 2) { self.millis(1, 500) } else { Duration::ZERO };
        if !wait.is_zero() {
            request = request.wait_time(wait);
        }
        let fenced = self.random.random_ratio(1, 3);
        let again = self.random.random_ratio(1, 4).then(|| self.millis(0, 200));
        let acquire = async {
            match again {
                None => acquire(request, fenced).await,
                Some(pause) => acquire_twice(&request.reentrant(true), fenced, pause).await,
            }
        };
        // Some lose their patience.
        let patience = self.random.random_ratio(1, 8);
        let patience = if patience { self.millis(0, 80) } else { Duration::from_secs(60) };
        let begun = Instant::now();
        let acquired = timeout(patience, acquire).await;
        self.note(|| format!("{key}, lease {lease:?}, wait {wait:?}: {acquired:?}"));
        let asked = begun.elapsed();
        if asked > again.unwrap_or_default() + wait + ASKING {
            self.violation(&format!("took {asked:?} for {key}, with a waiting time of {wait:?}"));
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
            Ok(Err(error)) => self.violation(&format!("was told {error:?}")),
        }
    }

    async fn hold(
        &mut self,
        guard: LockGuard,
        number: Option<i64>,
        lease: Duration,
        renewed: bool,
    ) {
        let mut belief = Belief::new(self, guard.key().as_str(), number);
        let longest_hold = self.world.plan.longest_hold;
        let longest = if renewed { longest_hold } else { (lease * 3 / 2).min(longest_hold) };
        // Many are short, some overrun their lease.
        let to_the_end = self.random.random_ratio(1, 3);
        let part = if to_the_end { 1.0 } else { self.random.random_range(0.0..1.0f64).powi(3) };
        let until = Instant::now() + longest.mul_f64(part);
        loop {
            let left = guard.remaining();
            if left.is_zero() {
                belief.ends();
                break;
            }
            belief.goes_on_for(left);
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
                () = guard.lost() => belief.ends(),
                () = async {
                    if guard.extend(lease).await.is_ok() {
                        belief.goes_on_for(guard.remaining());
                        sleep_until((Instant::now() + pause).min(belief.until)).await;
                    }
                } => {}
            }
        }
        let was_valid = guard.is_valid();
        if was_valid && belief.was_lost {
            self.violation(&format!("got {} back that was lost", guard.key()));
        }
        drop(belief);
        let end = self.random.random_range(0..10);
        self.note(|| format!("gives {} back ({end}), valid: {was_valid}", guard.key()));
        match end {
            0..5 => {
                let released = guard.release().await;
                self.note(|| format!("released: {released:?}"));
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

    fn note(&self, what: impl FnOnce() -> String) {
        self.world.trace.note(|| format!("{}: {}", self.name, what()));
    }

    fn violation(&self, what: &str) {
        self.world.violation(format!("{} {what}", self.name));
    }
}

async fn acquire(
    request: LockRequest,
    fenced: bool,
) -> Result<(LockGuard, Option<i64>), LockError> {
    if fenced {
        let guard = request.fenced().acquire().await?;
        let number = guard.fencing_token().number();
        Ok((guard.into_guard(), Some(number)))
    } else {
        request.acquire().await.map(|guard| (guard, None))
    }
}

/// In one scope, the second after a pause; whichever has an answer first, the other one is dropped.
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

/// A holder's belief in its lock, which ends when this is dropped, if not before.
struct Belief {
    world: Arc<World>,
    span: Span,
    drift: i32,
    /// When it ends unless the lease is extended.
    until: Instant,
    was_lost: bool,
}

impl Belief {
    fn new(worker: &Worker, key: &str, number: Option<i64>) -> Self {
        let start = worker.world.trace.elapsed();
        let (key, holder) = (key.to_owned(), worker.name.clone());
        let client = worker.client;
        let (granted, since, end) = (start, start, start);
        let span = Span { key, holder, client, granted, since, start, end, number };
        let world = Arc::clone(&worker.world);
        Self { world, span, drift: worker.drift, until: Instant::now(), was_lost: false }
    }

    /// The guard has told that it is lost.
    fn ends(&mut self) {
        self.until = self.until.min(Instant::now());
        self.was_lost = true;
    }

    /// What the guard tells, on the clock of its client.
    fn goes_on_for(&mut self, left: Duration) {
        let now = Instant::now();
        let until = now + left.div_f64(1.0 + f64::from(self.drift) / 1e6);
        let start = self.world.trace.at(now);
        if self.span.start < start && self.until + CLOCK_TICK < until {
            // An extended lease is a grant of its own: a quorum has confirmed it, whatever had
            // happened until then.
            let next = Span { since: self.span.start, start, number: None, ..self.span.clone() };
            let mut before = std::mem::replace(&mut self.span, next);
            before.end = self.world.trace.at(now.min(self.until));
            self.world.believed(before);
        }
        self.until = until;
    }
}

impl Drop for Belief {
    fn drop(&mut self) {
        let end = Instant::now().min(self.until);
        self.span.end = self.world.trace.at(end);
        self.world.believed(self.span.clone());
    }
}

const _: () = assert!(NODE_TIMEOUT.as_millis() == 50, "what asking takes is derived from it");
