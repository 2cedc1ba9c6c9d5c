//! Clients that lead one after another, beside handlers with two nested locks, until each client drains.
//!
//! The work of a leader lasts until it is dropped. Each of its steps is on its way to a resource for a random time, so that it
//! may arrive when the next leader works. A run checks that
//!
//! * the work of two leaders never runs at the same time, and their fencing tokens grow,
//! * the resource accepts no step of a leader after a step of a later leader,
//! * a drain ends each leader in time and begins no term,
//! * a drain serves handlers with a lock, and refuses the others, and
//! * no lock is left, and no caller waits, as in each run.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redlock_core::{Dialect, LockError, LockGuard, scope};
use tokio::time::{Instant, sleep, timeout};

use super::belief::Belief;
use super::history::{Hold, Span};
use super::plan::{Plan, Weakness, drift_of_a_clock};
use super::server::WallClock;
use super::worker::Worker;
use super::world::World;

/// How leaders and their resource behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leadership {
    /// As the documentation says.
    Correct,
    /// The work goes on in a task of its own, which nobody stops. The simulation has to find this.
    Detached,
    /// The resource accepts each step, without a look at its token. The simulation has to find this.
    Unfenced,
}

/// The resource that the leaders write to, with a record of their terms.
#[derive(Debug, Default)]
pub(super) struct Resource {
    highest_token: i64,
    /// The last term of which a step was accepted.
    last_term: u64,
    /// The end of the last term by a resignation. The next client leads without delay if nothing fails.
    resigned: Option<Instant>,
    pub(super) leading: Leading,
}

/// The numbers of the events in runs with leaders.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leading {
    pub(super) terms: u64,
    /// The terms that have ended before the drain of their client: the lock was lost, or the client has vanished.
    pub(super) lost: u64,
    /// The late steps that the resource has refused.
    pub(super) refused: u64,
    /// The handlers that have got their second lock during a drain.
    pub(super) served: u64,
    /// The longest time from a resignation to the next term.
    pub(super) longest_gap: Duration,
}

impl Leading {
    pub(super) fn add(&mut self, other: Self) {
        let Self { terms, lost, refused, served, longest_gap } = other;
        self.terms += terms;
        self.lost += lost;
        self.refused += refused;
        self.served += served;
        self.longest_gap = self.longest_gap.max(longest_gap);
    }
}

const LEASE: Duration = Duration::from_millis(450);
/// The longest time from a drain to the end of `run`: a request for the lock, a renewal, and a release on silent servers.
const LONGEST_RESIGNATION: Duration = Duration::from_secs(1);
/// The pause between two steps of a leader.
const STEP: Duration = Duration::from_millis(15);
/// The longest time for which a step is on its way to the resource, in milliseconds.
const LATE: u64 = 900;
/// For so long a detached leader goes on.
const DETACHED: Duration = Duration::from_secs(1);

impl Plan {
    /// Returns the plan of a seed with leaders, which meet faults.
    pub(super) fn leaders(seed: u64, leadership: Leadership) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut plan = Self::calm_leaders(seed, leadership);
        plan.add_faults(&mut random, 60..=500, false, Weakness::None);
        plan.sort();
        plan
    }

    /// Returns when a client begins its drain: one client after the other.
    pub(super) fn leader_drains_at(&self, client: usize) -> Duration {
        let part = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.length * part(client + 1) / part(self.clients.len() + 1)
    }

    /// Returns the plan of a seed with leaders, without faults.
    pub(super) fn calm_leaders(seed: u64, leadership: Leadership) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let servers = [1, 3, 3, 5][random.random_range(0..4)];
        let clock = |random: &mut SmallRng| WallClock { drift: drift_of_a_clock(random), ahead: 0 };
        Self {
            servers: (0..servers).map(|_| clock(&mut random)).collect(),
            dialect: Dialect::Plain,
            sharing: None,
            longest_wait: None,
            leases: vec![LEASE],
            workers: 3,
            length: Duration::from_secs(4),
            leadership: Some(leadership),
            tracks: true,
            ..Self::calm(seed)
        }
    }
}

/// The work of a leader, until it is dropped.
struct Term {
    world: Arc<World>,
    span: Span,
    drains_at: Duration,
}

impl Drop for Term {
    fn drop(&mut self) {
        let end = self.world.trace.elapsed();
        self.world.believed(Span { end, ..self.span.clone() });
        let resource = &mut *self.world.resource.lock();
        if end >= self.drains_at {
            resource.resigned = Some(Instant::now());
        } else {
            resource.leading.lost += 1;
        }
    }
}

impl Worker {
    /// Leads again and again until the client drains.
    pub(super) async fn lead(mut self, leadership: Leadership) {
        let drains_at = self.drains_at.unwrap_or_default();
        let seed = self.random.random();
        let (world, name, client) = (Arc::clone(&self.world), self.name.clone(), self.client);
        let request = self.locks.lead("leader").expire(LEASE);
        let leads = request.run(async |leader| {
            let number = leader.fencing_token().number();
            let term = world.begin_term(&name, client, number, drains_at);
            let work = work(term, number, seed, leadership);
            if leadership == Leadership::Detached {
                let _ = tokio::spawn(timeout(DETACHED, work)).await;
            } else {
                work.await;
            }
        });
        let drain = async {
            sleep(drains_at.saturating_sub(self.world.trace.elapsed())).await;
            drop(self.locks.drain());
            sleep(LONGEST_RESIGNATION).await;
        };
        let ended = tokio::select! {
            biased;
            ended = leads => Some(ended),
            () = drain => None,
        };
        self.record(|| format!("leads no more: {ended:?}"));
        match ended {
            Some(Err(LockError::Draining)) if self.is_draining() => {}
            // The work has ended by itself.
            Some(Ok(())) if leadership == Leadership::Detached => {}
            ended => self.violation(&format!("did not resign in time: {ended:?}")),
        }
    }

    /// Handles requests with two nested locks until the end of the plan.
    pub(super) async fn handle(mut self) {
        while self.world.trace.elapsed() < self.world.plan.length {
            self.pause().await;
            if self.is_draining() {
                drop(self.locks.drain());
            }
            let was_draining = self.is_draining();
            let ended = scope(self.handle_one()).await;
            match ended {
                Err(LockError::Draining) if self.is_draining() => {}
                Ok(()) | Err(_) if !was_draining => {}
                ended => self.violation(&format!("was not refused during a drain: {ended:?}")),
            }
        }
    }

    async fn handle_one(&mut self) -> Result<(), LockError> {
        let order = self.acquire("order").await?;
        let belief = self.believe(&order);
        sleep(self.millis(0, 120)).await;
        let stock = self.acquire("stock").await;
        match &stock {
            Err(LockError::Draining) if order.is_valid() => {
                self.violation("was refused during a drain although it holds a lock");
            }
            Ok(stock) => {
                if self.is_draining() {
                    self.world.resource.lock().leading.served += 1;
                }
                let belief = self.believe(stock);
                sleep(self.millis(0, 20)).await;
                drop(belief);
            }
            Err(_) => {}
        }
        drop((belief, stock));
        let _ = order.release().await;
        Ok(())
    }

    async fn acquire(&mut self, key: &str) -> Result<LockGuard, LockError> {
        let wait = self.millis(0, 400);
        let acquired = self.locks.lock(key).expire(LEASE).wait_time(wait).acquire().await;
        self.record(|| format!("{key}, wait {wait:?}: {acquired:?}"));
        acquired
    }

    fn believe(&self, guard: &LockGuard) -> Belief {
        let mut belief = Belief::new(self, guard.handle().keys(), Hold::Exclusive, None);
        belief.continue_for(guard.remaining());
        belief
    }
}

/// Sends steps to the resource without an end.
async fn work(term: Term, token: i64, seed: u64, leadership: Leadership) {
    let mut random = SmallRng::seed_from_u64(seed ^ token.unsigned_abs());
    let number = term.world.resource.lock().leading.terms;
    loop {
        let (world, late) = (Arc::clone(&term.world), random.random_range(0..=LATE));
        tokio::spawn(async move {
            sleep(Duration::from_millis(late)).await;
            world.take_step(number, token, leadership);
        });
        sleep(STEP).await;
    }
}

impl World {
    fn begin_term(
        self: &Arc<Self>,
        holder: &str,
        client: usize,
        number: i64,
        drains_at: Duration,
    ) -> Term {
        let start = self.trace.elapsed();
        if start >= drains_at {
            self.violation(format!("{holder} begins a term after its drain"));
        }
        let resource = &mut *self.resource.lock();
        let leading = &mut resource.leading;
        leading.terms += 1;
        if let Some(resigned) = resource.resigned.take() {
            leading.longest_gap = leading.longest_gap.max(resigned.elapsed());
        }
        let (key, holder) = ("leader".to_owned(), holder.to_owned());
        let (granted, since, leased, end) = (start, start, start, start);
        let (hold, number) = (Hold::Exclusive, Some(number));
        let span = Span { key, holder, client, hold, granted, since, leased, start, end, number };
        Term { world: Arc::clone(self), span, drains_at }
    }

    /// The resource accepts a step, or refuses it.
    fn take_step(&self, term: u64, token: i64, leadership: Leadership) {
        let is_late = {
            let resource = &mut *self.resource.lock();
            if token < resource.highest_token && leadership != Leadership::Unfenced {
                resource.leading.refused += 1;
                return;
            }
            resource.highest_token = resource.highest_token.max(token);
            std::mem::replace(&mut resource.last_term, term) > term
        };
        if is_late {
            self.violation(format!("a late step of term {term} was accepted"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::seeds::seeds;
    use crate::world::run_plan;
    use crate::{assert_reached, runs};

    use super::*;

    /// The longest time from a resignation to the next term if nothing fails: a release, its message, and an acquisition, of
    /// which some may be repeated because handlers are in the way.
    const NEXT: Duration = Duration::from_millis(100);

    #[test]
    fn one_leader_works_at_a_time_and_a_drain_serves_holders() {
        let (runs, total) =
            runs(seeds("simulation-leaders"), |seed| Plan::leaders(seed, Leadership::Correct));
        let Leading { terms, lost, refused, served, .. } = total.leading;
        let outcomes = [
            ("terms", terms, 2 * runs),
            ("lost terms", lost, runs / 4),
            ("refused steps", refused, runs),
            ("holders that were served", served, runs / 4),
        ];
        assert_reached(runs, outcomes);
    }

    #[test]
    fn without_faults_the_next_client_leads_as_soon_as_a_leader_has_resigned() {
        let plan = |seed| Plan::calm_leaders(seed, Leadership::Correct);
        let (runs, total) = runs(seeds("simulation-leaders"), plan);
        let Leading { terms, lost, longest_gap, .. } = total.leading;
        assert_reached(runs, [("terms", terms, 2 * runs)]);
        assert_eq!(lost, 0);
        assert!(longest_gap < NEXT, "{longest_gap:?}");
    }

    #[test]
    fn the_simulation_finds_leaders_that_nobody_stops_and_a_resource_without_tokens() {
        for (leadership, words) in [
            (Leadership::Detached, "two holders at the same time"),
            (Leadership::Unfenced, "a late step of term"),
        ] {
            const TRIES: u64 = 40;
            let found = (0..TRIES).find(|seed| {
                let violations = run_plan(Plan::leaders(*seed, leadership), false).violations;
                violations.iter().any(|violation| violation.contains(words))
            });
            eprintln!("{leadership:?} is found by seed {found:?}");
            assert!(found.is_some(), "no violation in {TRIES} runs: {leadership:?}");
        }
    }
}
