//! Renews leases, and detects leases that have run out.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, OptionFuture};
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::holding::{BREAK, Due, HoldState, Holding, RAN_OUT};
use crate::ballot::Ballot;
use crate::error::{HoldError, LossCause, Votes};
use crate::jitter::jitter;
use crate::options::Renewal;
use crate::validity::MIN_EXPIRE;

/// A lease is renewed after a third of it has passed, as with Redisson's watchdog.
const RENEWALS_PER_LEASE: u32 = 3;
/// A failed renewal is repeated after this fraction of the lease.
const RETRIES_PER_LEASE: u32 = 30;
/// A renewal that runs later than this fraction of the lease is a cause of a loss.
const LATE_PER_LEASE: u32 = 10;
const SHORTEST_RETRY: Duration = Duration::from_millis(5);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

const NOT_RENEWED: &str = "the lease could not be renewed in time";
const SUSPENDED: &str =
    "the lease ended while the timers of the process stood still; the machine was suspended";

/// Renews all leases of a manager, and detects leases that have run out, in one task. Has every held lock, ordered by the
/// time at which the task has to handle it.
#[derive(Debug, Default)]
pub(crate) struct LeaseKeeper {
    entries: Mutex<ScheduledLocks>,
    /// Locked by a caller that reads all entries.
    reader: Mutex<()>,
    /// The locks about which the task has to ask the nodes, because a node has hinted that they are gone.
    hinted: Mutex<Vec<Arc<Holding>>>,
    /// Wakes the task.
    wake: Notify,
}

#[derive(Debug, Default)]
struct ScheduledLocks {
    by_due: BTreeMap<Due, ScheduledLock>,
    next_id: u64,
    /// The locks that became due earlier while a caller reads all entries, which may have passed their new place.
    moved: Option<Vec<Arc<Holding>>>,
    /// When the task's own timer wakes it, or will wake it once the task has run.
    wakes_at: Option<Instant>,
}

#[derive(Debug, Clone)]
struct ScheduledLock {
    held: Arc<Holding>,
    renewal: Option<Renewal>,
}

impl ScheduledLock {
    fn next_due(&self, now: Instant, remaining: Duration) -> Instant {
        match self.renewal {
            // Spread by a tenth, so that locks acquired together are not all renewed at once.
            Some(Renewal { lease, .. }) => {
                now + (lease / RENEWALS_PER_LEASE).mul_f64(jitter(0.9..1.0))
            }
            None => now + remaining,
        }
    }

    /// Records that a renewal was due long before it runs.
    fn record_late(&self, due: Instant, now: Instant) {
        let late = now.saturating_duration_since(due);
        if let Some(Renewal { lease, .. }) = self.renewal
            && late > lease / LATE_PER_LEASE
        {
            self.held.attempt().last_extension.record_late(late);
        }
    }
}

impl LeaseKeeper {
    /// Adds a lock that is valid for `remaining` at `now`, or for longer. If this process was stopped since then, the
    /// task reports a loss later by this time; the lock itself compares its validity with the clock.
    pub(crate) fn add(
        &self,
        held: &Arc<Holding>,
        renewal: Option<Renewal>,
        now: Instant,
        remaining: Duration,
    ) {
        let entry = ScheduledLock { held: Arc::clone(held), renewal };
        let due = entry.next_due(now, remaining);
        self.insert(entry, due);
    }

    /// Starts the task, which runs until `end` is cancelled.
    ///
    /// `leave` is called for a reader whose own part of a lock has ended, while the lock goes on for others. It is released
    /// when the last of them has left.
    pub(crate) fn start(
        self: &Arc<Self>,
        runtime: &Handle,
        ballot: &Ballot,
        end: CancellationToken,
        leave: impl Fn(&Arc<Holding>) + Send + Sync + 'static,
    ) {
        let run = run(Arc::clone(self), ballot.clone(), leave);
        runtime.spawn(end.run_until_cancelled_owned(run));
    }

    /// Calls `f` with each lock. The schedule stays locked only while a few locks are copied, so that it never waits for `f`. A
    /// lock that is renewed meanwhile may come twice.
    pub(crate) fn for_each(&self, mut f: impl FnMut(Arc<Holding>)) {
        const COPIED: usize = 256;
        let _reader = self.reader.lock();
        self.entries.lock().moved = Some(Vec::new());
        let mut after = None;
        loop {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let some: Vec<_> = {
                let mut entries = self.entries.lock();
                let some = entries.by_due.range((from, Bound::Unbounded)).take(COPIED);
                let some: Vec<_> =
                    some.map(|(due, entry)| (*due, Arc::clone(&entry.held))).collect();
                if some.is_empty() {
                    let moved = entries.moved.take();
                    drop(entries);
                    return moved.into_iter().flatten().for_each(f);
                }
                some
            };
            for (due, held) in some {
                after = Some(due);
                f(held);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.lock().by_due.is_empty()
    }

    fn insert(&self, entry: ScheduledLock, due: Instant) {
        let mut entries = self.entries.lock();
        // Checked under the schedule's lock: a caller that ends the holding removes the entry only afterwards,
        // so no ended lock stays in the schedule.
        if entry.held.state() != HoldState::Held {
            return;
        }
        let id = entries.next_id;
        entries.next_id += 1;
        if let Some(earlier) = entry.held.set_due(Some((due, id))) {
            entries.by_due.remove(&earlier);
            if due < earlier.0
                && let Some(moved) = &mut entries.moved
            {
                moved.push(Arc::clone(&entry.held));
            }
        }
        entries.by_due.insert((due, id), entry);
        if entries.wakes_at.is_none_or(|wakes_at| due < wakes_at) {
            entries.wakes_at = Some(due);
            self.wake.notify_one();
        }
    }

    /// Removes a lock.
    pub(crate) fn remove(&self, held: &Holding) {
        let mut entries = self.entries.lock();
        if let Some(due) = held.set_due(None) {
            entries.by_due.remove(&due);
        }
    }

    /// Ends the holding, because a quorum of nodes has denied that its attempt holds the lock. After a hand-over, the lock of
    /// the present holder is not valid any more either, and its loss is reported when its holder or the task looks at it.
    pub(crate) fn lose_denied(&self, held: &Arc<Holding>, votes: &Votes) {
        self.lose_found("extension", held, votes);
    }

    fn lose_found(&self, found: &'static str, held: &Arc<Holding>, votes: &Votes) {
        self.lose_all(found, held, votes, "a quorum of nodes no longer holds the lock");
    }

    /// Ends the holdings of all readers of this process that share the lock.
    fn lose_all(
        &self,
        found: &'static str,
        held: &Arc<Holding>,
        votes: &Votes,
        reason: &'static str,
    ) {
        // First, so that no reader joins the lock from now on.
        held.attempt().deny(votes);
        for held in held.siblings() {
            self.remove(&held);
            held.lose(found, LossCause::NotOnNodes, reason);
        }
    }

    /// Ends the holding, because an operator breaks the lock, see [`LockManager::break_lock`](crate::LockManager::break_lock).
    pub(crate) fn lose_broken(&self, held: &Arc<Holding>, votes: &Votes) {
        self.lose_all(BREAK, held, votes, "an operator has broken the lock");
    }

    /// Asks the nodes whether they still have a lock, because a node has hinted that it is gone.
    pub(super) fn look_at(&self, held: Arc<Holding>) {
        self.hinted.lock().push(held);
        self.wake.notify_one();
    }

    /// Returns the lease with which the task renews a lock; `None` if it does not.
    fn renewed_lease(&self, held: &Holding) -> Option<Duration> {
        let entries = self.entries.lock();
        let entry = entries.by_due.get(&held.due()?)?;
        let renewal = entry.renewal?;
        renewal.until.is_none_or(|until| Instant::now() < until).then_some(renewal.lease)
    }

    /// Records how late the task is with the renewal of a lock that is lost, if it is.
    pub(crate) fn record_late(&self, held: &Holding) {
        let entries = self.entries.lock();
        if let Some(due) = held.due()
            && let Some(entry) = entries.by_due.get(&due)
        {
            entry.record_late(due.0, Instant::now());
        }
    }

    /// Returns the entries that are due, each with the time at which it was due. They stay in the schedule until the caller
    /// inserts them again or removes them, so that no reader misses a held lock.
    fn due(&self, now: Instant) -> Vec<(Instant, ScheduledLock)> {
        let entries = self.entries.lock();
        let last = (now, u64::MAX);
        entries.by_due.range(..=last).map(|((due, _), entry)| (*due, entry.clone())).collect()
    }

    /// Returns when the task has to run again. An entry that is inserted with an earlier time wakes the task.
    ///
    /// A time that was chosen for an entry stays even if the entry was removed meanwhile. Otherwise, each lock
    /// of a manager that holds one lock after another would wake the task.
    fn next_due(&self) -> Option<Instant> {
        let mut entries = self.entries.lock();
        let now = Instant::now();
        let chosen = entries.wakes_at.filter(|wakes_at| *wakes_at > now);
        let first = entries.by_due.first_key_value().map(|((due, _), _)| *due);
        // An entry with an earlier time would have been chosen when it was inserted.
        entries.wakes_at = chosen.or(first);
        entries.wakes_at
    }
}

async fn run(keeper: Arc<LeaseKeeper>, ballot: Ballot, leave: impl Fn(&Arc<Holding>)) {
    let mut renewals = FuturesUnordered::new();
    loop {
        for (due, mut entry) in keeper.due(Instant::now()) {
            let now = Instant::now();
            let is_renewed = |renewal: &Renewal| renewal.until.is_none_or(|until| now < until);
            entry.renewal = entry.renewal.filter(is_renewed);
            let next_due = entry.next_due(now, entry.held.remaining());
            match entry.renewal {
                Some(Renewal { lease, .. }) => {
                    entry.record_late(due, now);
                    // The entry stays in the schedule during the renewal, so that the loss of the lock is noticed in
                    // time while the nodes do not reply.
                    keeper.insert(entry.clone(), next_due);
                    renewals.push(Either::Left(renew(&keeper, &ballot, entry, lease)));
                }
                // The holder has extended the lease in the meantime.
                None if entry.held.is_valid() => keeper.insert(entry, next_due),
                None => {
                    keeper.remove(&entry.held);
                    entry.held.lose("expiry", LossCause::LeaseEnded, RAN_OUT);
                    if entry.held.is_outlived() {
                        // Its guard may live for long, and must not keep writers out.
                        leave(&entry.held);
                    }
                }
            }
        }
        let hinted = std::mem::take(&mut *keeper.hinted.lock());
        for held in hinted {
            renewals.push(Either::Right(follow_hints(&keeper, &ballot, held)));
        }
        let timer = OptionFuture::from(keeper.next_due().map(sleep_until));
        tokio::select! {
            biased;
            // Renewals come first, because the other branches may be ready again and again.
            Some(()) = renewals.next() => {}
            () = keeper.wake.notified() => {}
            Some(()) = timer => {}
        }
    }
}

async fn renew(keeper: &LeaseKeeper, ballot: &Ballot, entry: ScheduledLock, lease: Duration) {
    let held = &Arc::clone(&entry.held);
    let too_late = |reason| {
        keeper.remove(held);
        held.lose("expiry", LossCause::LeaseEnded, reason);
    };
    if !held.is_valid() {
        // Otherwise a renewal would have begun earlier.
        let has_cause = held.attempt().last_extension.unconfirmed().is_some();
        return too_late(if has_cause { NOT_RENEWED } else { SUSPENDED });
    }
    let retry = (lease / RETRIES_PER_LEASE).clamp(SHORTEST_RETRY, LONGEST_RETRY);
    let turn = match held.shared_renewal() {
        None => None,
        Some(readers) => {
            // One of the readers renews the lock for all of them.
            let (now, age) = (Instant::now(), held.lease_age(lease));
            if let Some(age) = age.filter(|age| *age < lease / RENEWALS_PER_LEASE / 2) {
                let next = (lease / RENEWALS_PER_LEASE).mul_f64(jitter(0.9..1.0));
                return keeper.insert(entry, now + next.saturating_sub(age));
            }
            let Some(turn) = readers.begin_renewal(held.now()) else {
                let due = now + retry.min(held.remaining());
                return keeper.insert(entry, due);
            };
            Some(turn)
        }
    };
    match held.extend(ballot, lease).await {
        Ok(since) => {
            if let Some(hints) = held.hints() {
                hints.renewed();
            }
            if !held.record_extension(since, lease) {
                too_late("the renewal was confirmed after the end of the lease");
            }
        }
        Err(HoldError::Lost(lost)) => {
            tracing::debug!(key = %lost.key(), votes = %lost.votes, "a renewal was denied");
            keeper.lose_denied(held, &lost.votes);
        }
        // The lock is not lost as long as validity is left (a failed extension is not a release).
        Err(error) => {
            tracing::debug!(error = %error.diagnostics(), "a renewal was not confirmed; retrying");
            if let Some(turn) = turn {
                turn.fail(held.now().plus(retry));
            }
            let due = Instant::now() + retry.min(held.remaining());
            keeper.insert(entry, due);
        }
    }
}

/// Asks the nodes whether they still have a lock, until no hint has come meanwhile. Their votes decide. A lock that is not
/// renewed is extended by no more than the rest of its validity, so it ends as before.
async fn follow_hints(keeper: &LeaseKeeper, ballot: &Ballot, held: Arc<Holding>) {
    let Some(hints) = held.hints() else { return };
    loop {
        hints.begin_look();
        // The end of the validity is found in the order of the schedule.
        let lease = keeper.renewed_lease(&held).unwrap_or_else(|| held.remaining());
        if !held.is_valid() || lease < MIN_EXPIRE {
            hints.end_look();
            return;
        }
        match held.extend(ballot, lease).await {
            Ok(since) => drop(held.record_extension(since, lease)),
            Err(HoldError::Lost(lost)) => {
                tracing::debug!(key = %lost.key(), votes = %lost.votes, "a node hinted at a loss");
                return keeper.lose_found("hint", &held, &lost.votes);
            }
            // The renewal goes on as without a hint.
            Err(error) => {
                tracing::debug!(error = %error.diagnostics(), "a hint at a loss was not decided");
            }
        }
        if hints.end_look() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::guard::LockGuard;
    use crate::manager::LockManager;

    const LEASE: Duration = Duration::from_secs(30);

    async fn many(locks: &LockManager, renew: bool) -> Vec<LockGuard> {
        let mut guards = Vec::new();
        for number in 0..600 {
            let request = locks.lock(format!("order:{number}")).expire(LEASE).renew(renew);
            guards.push(request.try_acquire().await.unwrap());
        }
        guards
    }

    /// The task works on many locks at once after a pause of the process.
    #[tokio::test]
    async fn a_reader_sees_the_locks_that_the_task_has_taken_to_renew_them() {
        let locks = LockManager::in_memory();
        let _guards = many(&locks, true).await;
        let keeper = &locks.context().keeper;
        assert_eq!(keeper.due(Instant::now() + LEASE).len(), 600);
        let mut seen = 0;
        keeper.for_each(|_| seen += 1);
        assert_eq!(seen, 600);
    }

    /// A renewal that was not confirmed is repeated soon, which moves the lock before the place of the reader.
    #[tokio::test]
    async fn a_reader_sees_a_lock_that_moves_before_its_place() {
        let locks = LockManager::in_memory();
        let _guards = many(&locks, false).await;
        let keeper = &locks.context().keeper;
        let last = keeper.entries.lock().by_due.last_key_value().map(|(_, entry)| entry.clone());
        let (now, mut last) = (Instant::now(), last);
        let mut seen = HashSet::new();
        keeper.for_each(|held| {
            if let Some(entry) = last.take() {
                keeper.insert(entry, now + Duration::from_secs(1));
            }
            seen.insert(Arc::as_ptr(&held).addr());
        });
        assert_eq!(seen.len(), 600);
        assert!(keeper.entries.lock().moved.is_none());
    }
}
