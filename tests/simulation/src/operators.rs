//! An operator who removes the holders of fenced locks: by breaks, and by a deletion of the key on all servers at once.
//!
//! The holders wait for the loss of their locks. Without faults, a run checks that a former holder works beside the next one
//! only until the hint of a server has reached it, and the votes of the nodes. With faults, it may work until the end of its
//! validity. In each run, no fencing number is issued twice, and no lock is left.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redlock_core::{BreakError, FencingToken, LockManager, OwnerLabel};
use tokio::time::{Instant, sleep};

use super::belief::Belief;
use super::history::{Hold, Span};
use super::plan::{Plan, Weakness};
use super::server::Server;
use super::worker::Worker;
use super::world::World;

/// What an operator has done, and the numbers of all holders.
#[derive(Debug, Default)]
pub(super) struct Operations {
    removals: Vec<Removal>,
    numbers: BTreeSet<(String, i64)>,
}

/// The removal of the holder of a key. It happens between the two times.
#[derive(Debug)]
struct Removal {
    key: String,
    /// The client of the holder. A deletion removes each holder.
    client: Option<usize>,
    from: Duration,
    until: Duration,
}

/// A lease longer than a run, so that no renewal tells a holder of its loss.
const LONG_LEASE: Duration = Duration::from_secs(20);
const SHORT_LEASE: Duration = Duration::from_millis(450);
/// The longest time from a removal until its holder knows it, if nothing fails: a message of a server, a read of the key, an
/// extension on all nodes, and perhaps the end of an extension before. Each way of a packet takes up to 7 ms.
const KNOWN: Duration = Duration::from_millis(60);
/// The longest time from the setting of a lock on a server to the grant to its holder.
const ACQUIRING: Duration = Duration::from_millis(200);

impl Plan {
    /// Returns the plan of a seed with an operator, which meets faults.
    pub(super) fn operator(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut plan = Self { leases: vec![SHORT_LEASE], ..Self::calm_operator(seed) };
        plan.add_faults(&mut random, 100..=900, false, Weakness::None);
        plan.sort();
        plan
    }

    /// Returns the plan of a seed with an operator, without faults. A packet takes about as long as each other one, so that
    /// two grants are known in the order of their numbers.
    pub(super) fn calm_operator(seed: u64) -> Self {
        Self {
            keys: 2,
            workers: 2,
            length: Duration::from_secs(2),
            sharing: None,
            longest_wait: None,
            latency: 4..=7,
            leases: vec![LONG_LEASE],
            longest_hold: Duration::from_millis(300),
            has_operator: true,
            ..Self::calm(seed)
        }
    }
}

/// Returns the label of the manager of a client.
pub(super) fn label_of(client: usize) -> String {
    format!("client-{client}")
}

impl Worker {
    /// Has fenced locks, and waits for their loss, until the end of the plan.
    pub(super) async fn work_beside_operator(mut self) {
        while self.world.trace.elapsed() < self.world.plan.length {
            self.pause().await;
            let key = format!("key-{}", self.random.random_range(0..self.world.plan.keys));
            let (lease, wait) = (self.world.plan.longest_lease(), self.millis(0, 500));
            let request = self.locks.lock(&key).expire(lease).renew(true).fenced(true);
            let begun = Instant::now();
            let acquired = request.wait_time(wait).acquire().await;
            self.record(|| format!("{key}, wait {wait:?}: {acquired:?}"));
            let acquired = Ok::<_, ()>(acquired);
            self.world.count(Hold::Exclusive, begun.elapsed(), &acquired);
            let Ok(Ok(guard)) = acquired else { continue };
            let number = guard.fencing_token().map(FencingToken::number);
            let is_new = number.is_some_and(|number| self.world.take_number(&key, number));
            if !is_new {
                self.violation(&format!(
                    "has a number of {key} that was issued before: {number:?}"
                ));
            }
            // Behind faults, the grant of a number may be known long after that of a greater one.
            let shown = number.filter(|_| self.world.plan.faults.is_empty());
            let mut belief = Belief::new(&self, guard.handle().keys(), Hold::Exclusive, shown);
            self.watch(&guard, &mut belief, self.world.plan.longest_hold).await;
            if belief.was_lost {
                self.world.count_removed();
            }
            drop(belief);
            let released = guard.release().await;
            self.record(|| format!("released {key}: {released:?}"));
        }
    }
}

impl World {
    /// Removes holders at random times. Never returns.
    pub(super) async fn operate(&self, ops: &LockManager, servers: &[Server]) {
        let mut random = SmallRng::seed_from_u64(!self.plan.seed);
        loop {
            sleep(Duration::from_millis(random.random_range(20..=200))).await;
            let key = format!("key-{}", random.random_range(0..self.plan.keys));
            if random.random_ratio(1, 3) {
                let until = self.trace.elapsed();
                for server in servers {
                    server.delete(&key);
                }
                let removal = Removal { key, client: None, from: until, until };
                self.operations.lock().removals.push(removal);
                continue;
            }
            let Ok(status) = ops.status(&key).await else { continue };
            let Some(holder) = status.holders().first() else { continue };
            let is_label = |client: &usize| {
                holder.label().map(OwnerLabel::as_str) == Some(&*label_of(*client))
            };
            let client = (0..self.plan.clients.len()).find(is_label);
            let from = self.trace.elapsed();
            let index = {
                let removals = &mut self.operations.lock().removals;
                // The run may end during the break.
                let removal = Removal { key: key.clone(), client, from, until: Duration::MAX };
                removals.push(removal);
                removals.len() - 1
            };
            let broken = ops.break_lock(&key, holder).await;
            self.trace.record(|| format!("a break of {key} of client {client:?}: {broken:?}"));
            self.operations.lock().removals[index].until = self.trace.elapsed();
            if let Err(error) = broken
                && !matches!(error, BreakError::NotHeld { .. } | BreakError::Unavailable { .. })
            {
                self.violation(format!("a break got the unexpected error {error:?}"));
            }
        }
    }

    /// Returns whether no holder of this key had this number before.
    fn take_number(&self, key: &str, number: i64) -> bool {
        self.operations.lock().numbers.insert((key.to_owned(), number))
    }

    /// Returns whether an operator has removed the first holder, which knew it in time.
    pub(super) fn has_removed(&self, first: &Span, second: &Span) -> bool {
        let is_calm = self.plan.faults.is_empty();
        self.operations.lock().removals.iter().any(|removal| {
            removal.key == first.key
                && removal.client.is_none_or(|client| client == first.client)
                && removal.from <= second.start
                && removal.until.saturating_add(ACQUIRING) >= first.leased
                && (!is_calm || first.end <= removal.until.max(first.granted).saturating_add(KNOWN))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::seeds;
    use crate::world::run_plan;
    use crate::{assert_reached, runs};

    #[test]
    fn without_faults_a_removed_holder_ends_as_soon_as_a_hint_reaches_it() {
        let (runs, total) = runs(seeds("simulation-operators"), Plan::calm_operator);
        assert_reached(
            runs,
            [("removed", total.removed, 3 * runs), ("granted", total.granted, runs)],
        );
    }

    #[test]
    fn with_faults_no_number_is_issued_twice_and_no_lock_is_left() {
        let (runs, total) = runs(seeds("simulation-operators"), Plan::operator);
        assert_reached(
            runs,
            [("removed", total.removed, 3 * runs), ("faults", total.faults, runs)],
        );
    }

    #[test]
    fn the_simulation_finds_holders_without_hints() {
        let plan = |seed| Plan { tracks: false, ..Plan::calm_operator(seed) };
        let found = (0..40).find(|seed| {
            let violations = run_plan(plan(*seed), false).violations;
            violations.iter().any(|words| words.contains("two holders at the same time"))
        });
        eprintln!("holders without hints are found by seed {found:?}");
        assert!(found.is_some());
    }
}
