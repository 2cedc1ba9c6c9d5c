//! All lines of a manager.

use std::array;
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::{Entry, OccupiedEntry};
use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::hand_over::hand_over;
use super::waiter::{KeyLine, Shared, Waiter};
use super::waiting_keys::WaitingKeys;
use crate::ballot::Ballot;
use crate::caller_id::CallerId;
use crate::error::{LockError, Votes};
use crate::home::Home;
use crate::key::LockKey;
use crate::lease::Holding;
use crate::lock::{ByDialect, HolderId, LockSpec, Mode, OwnerLabel};
use crate::log_limit::LogLimit;
use crate::options::JoinTerms;
use crate::random::hash_state;
use crate::telemetry::Named;

/// The lines of the locks in one dialect.
type LinesByKey = HashMap<LockKey, KeyLine, RandomState>;

/// The holders and waiters of every key in this process. Locks in two dialects have two lines, because a lock is never
/// handed over to a waiter for the other dialect.
#[derive(Debug)]
pub(crate) struct Queues {
    /// Every pair of an acquisition and a release looks its key up four times. `ahash` is faster than the
    /// default hasher, and has random keys too: callers choose the keys of locks, and must not be able to
    /// choose colliding ones.
    by_key: ByDialect<Mutex<LinesByKey>>,
    waiting_keys: ByDialect<Arc<WaitingKeys>>,
    pub(super) home: Arc<Home>,
    pub(super) ballot: Ballot,
    pub(super) max_waiters: usize,
    /// How long waiters keep their places while no quorum of nodes answers.
    pub(super) outage_grace: Duration,
    /// Cancelled when the manager is shut down, or its runtime has ended.
    pub(super) closed: CancellationToken,
    /// Limits how often waits in an outage are logged.
    pub(super) log_limit: Arc<LogLimit>,
}

/// The permit to release a lock on the nodes, issued if the lock was not handed over. Dropping the permit
/// lets the next waiter ask the nodes, whether the lock was released or not.
#[must_use]
pub(crate) struct ReleasePermit<'a> {
    queues: &'a Queues,
    held: &'a Arc<Holding>,
    /// Whether this process had subscribed before the release.
    subscribed: bool,
    /// How many processes were notified of the release, if it is known.
    subscribers: Option<usize>,
}

impl ReleasePermit<'_> {
    /// Records that the lock was released, and how many processes were notified.
    pub(crate) fn released(mut self, subscribers: Option<usize>) {
        self.subscribers = subscribers;
    }
}

/// A key for which callers of this process wait.
#[derive(Debug)]
pub(crate) struct WaitingKey {
    pub(crate) key: LockKey,
    /// The name that the first caller has given to the lock.
    pub(crate) name: Cow<'static, str>,
    pub(crate) waiters: usize,
    /// When the caller came that has waited for the longest time.
    pub(crate) since: Instant,
    /// Whether the first caller asks the nodes.
    pub(crate) is_asking: bool,
    /// The label of the holder that the nodes have last named.
    pub(crate) holder: Option<OwnerLabel>,
}

impl WaitingKey {
    /// Returns `None` if nobody waits.
    fn of(key: &LockKey, line: &KeyLine) -> Option<Self> {
        let first = line.first()?;
        Some(Self {
            key: key.clone(),
            name: first.waiter.options.name.name.text(),
            waiters: line.len(),
            since: line.entries().map(|entry| entry.waiter.options.since).min()?,
            is_asking: first.is_asking(),
            holder: line.shared()?.holder.clone(),
        })
    }
}

impl Queues {
    pub(crate) fn new(
        home: Arc<Home>,
        ballot: Ballot,
        max_waiters: usize,
        outage_grace: Duration,
        log_limit: Arc<LogLimit>,
    ) -> Self {
        let state = hash_state();
        let by_key = array::from_fn(|_| Mutex::new(HashMap::with_hasher(state.clone())));
        let (waiting_keys, closed) = (ByDialect::default(), CancellationToken::new());
        Self { by_key, waiting_keys, home, ballot, max_waiters, outage_grace, closed, log_limit }
    }

    /// Locks the lines of the dialect of `spec`.
    #[inline]
    pub(super) fn lock(&self, spec: &LockSpec) -> MutexGuard<'_, LinesByKey> {
        self.by_key[spec.dialect().index()].lock()
    }

    /// Returns the refusal of a request because of a lock of this process, without votes: the first key that the lock has too,
    /// and its remaining validity. `None` if there is no such lock.
    pub(crate) fn local_conflict(&self, spec: &LockSpec) -> Option<LockError> {
        let mut by_key = self.lock(spec);
        spec.keys().iter().find_map(|key| {
            let line = by_key.get_mut(key)?;
            let (held, remaining) = line.keeps_out(spec.mode(), Instant::now)?;
            Some(refusal_by(held, key, remaining))
        })
    }

    /// Lets a reader join the lock of another reader of this process, if it may. Returns its holding.
    #[inline]
    pub(crate) fn join(
        &self,
        spec: &LockSpec,
        terms: &JoinTerms,
        caller: impl FnOnce() -> CallerId,
        name: &Named,
    ) -> Option<Arc<Holding>> {
        let mut by_key = self.lock(spec);
        let line = by_key.get_mut(spec.key())?;
        if self.home.drain.has_begun() {
            return None;
        }
        // The window is compared with the clock of the lease.
        line.join(terms.expire, Instant::now(), |open| {
            open.for_reader(caller(), name, terms.lasts())
        })
    }

    /// Lets a waiter join the lock of another reader, if it may. The waiter leaves the line, and takes the lock next.
    pub(super) fn join_as(&self, line: &mut KeyLine, waiter: &Arc<Waiter>, now: Instant) -> bool {
        let Some(terms) = waiter.options.joins else { return false };
        if self.home.drain.has_begun() || waiter.was_handed_over() {
            return false;
        }
        let joined = line.join(terms.expire, now, |open| waiter.joined(open));
        let Some(held) = joined else { return false };
        if line.remove(waiter, Waiter::wake) {
            waiter.options.name.metrics.waits_no_longer();
        }
        waiter.assign(held);
        true
    }

    /// Returns the index of the first key that a lock of this process holds or another caller of this process
    /// waits for. A caller that waits through an outage does not count: an arriving caller finds out itself
    /// whether the outage is over.
    pub(crate) fn busy_key(&self, spec: &LockSpec) -> Option<usize> {
        let has_quorum = self.ballot.has_quorum();
        let mut by_key = self.lock(spec);
        for key in spec.keys() {
            // The caller is a writer.
            if let Some(line) = by_key.get_mut(key) {
                line.close_window();
            }
        }
        spec.keys().iter().position(|key| {
            by_key.get(key).is_some_and(|line| {
                line.conflict(spec.mode(), Instant::now).is_some()
                    || !line.is_idle() && line.outage().is_none() && has_quorum
            })
        })
    }

    /// Returns an error during a drain, unless the scope or the task of the caller holds a lock: its work could not go on to
    /// its end without further locks.
    #[inline]
    pub(crate) fn check_drain(&self, caller: impl FnOnce() -> CallerId) -> Result<(), LockError> {
        if self.home.drain.has_begun() && !self.is_holder(caller()) {
            return Err(LockError::Draining);
        }
        Ok(())
    }

    fn is_holder(&self, caller: CallerId) -> bool {
        self.holders(|held| held.caller().is_same(caller)) > 0
    }

    /// Returns how many locks of this process meet the condition. A lock of several keys counts for each of them.
    pub(crate) fn holders(&self, condition: impl Fn(&Holding) -> bool) -> usize {
        let count = |line: &KeyLine| line.holders().iter().filter(|held| condition(held)).count();
        self.by_key.iter().map(|by_key| by_key.lock().values().map(count).sum::<usize>()).sum()
    }

    /// Returns the ids of the holders of this process at the first key of a lock, each with the number of its guards. Readers
    /// that share a lock have the same id.
    pub(crate) fn guards(&self, spec: &LockSpec) -> Vec<(HolderId, usize)> {
        let by_key = self.lock(spec);
        let holders = by_key.get(spec.key()).map_or(&[][..], KeyLine::holders);
        let held = holders.iter().filter(|held| held.is_valid());
        held.map(|held| (held.attempt().holder_id(), held.guards())).collect()
    }

    /// Returns the holders of this process at the first key of a lock whose token has this id. After a hand-over, the former and
    /// the present holder may both be there.
    pub(crate) fn holders_with_id(&self, spec: &LockSpec, id: HolderId) -> Vec<Arc<Holding>> {
        let by_key = self.lock(spec);
        let holders = by_key.get(spec.key()).map_or(&[][..], KeyLine::holders).iter();
        holders.filter(|held| held.attempt().holder_id() == id).cloned().collect()
    }

    /// Returns how many callers of this process wait for the first key of a lock, and since when the longest.
    pub(crate) fn waiters(&self, spec: &LockSpec) -> (usize, Option<Duration>) {
        let by_key = self.lock(spec);
        let Some(line) = by_key.get(spec.key()) else { return (0, None) };
        let first = line.entries().map(|entry| entry.waiter.options.since).min();
        (line.len(), first.map(|since| since.elapsed()))
    }

    /// Returns what the waiters of a key share, when the first one comes.
    pub(super) fn share(&self, spec: &LockSpec, key: usize) -> Shared {
        Shared::new(self.waiting_keys[spec.dialect().index()].list(spec.key_at(key)))
    }

    /// Returns the keys for which callers of this process wait. The queues stay locked only while a few keys are copied.
    pub(crate) fn waiting_keys(&self) -> Vec<WaitingKey> {
        const COPIED: usize = 256;
        let mut all = Vec::new();
        for (by_key, keys) in self.by_key.iter().zip(&self.waiting_keys) {
            let mut waiting = Vec::new();
            for from in (0..).step_by(COPIED) {
                let Some(part) = keys.part(from, COPIED) else { break };
                let by_key = by_key.lock();
                let part = part.iter().filter_map(|key| WaitingKey::of(key, by_key.get(key)?));
                waiting.extend(part);
            }
            // A key that is left and entered again meanwhile may come twice.
            waiting.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            waiting.dedup_by(|one, other| one.key == other.key);
            all.append(&mut waiting);
        }
        all
    }

    /// Notifies all waiters after a drain or a shutdown has begun.
    pub(crate) fn wake_all(&self) {
        for by_key in &self.by_key {
            let by_key = by_key.lock();
            let entries = by_key.values().flat_map(KeyLine::entries);
            entries.for_each(|entry| Waiter::wake(&entry.waiter));
        }
    }

    /// Ends all waiting, and lets the attendants of the fair queues remove their tickets, after a shutdown has begun or the
    /// runtime has ended. Returns the locks that this process holds, including locks that were handed over and not taken
    /// yet.
    pub(crate) fn close(&self) -> Vec<Arc<Holding>> {
        self.closed.cancel();
        self.wake_all();
        let mut held = Vec::new();
        for by_key in &self.by_key {
            by_key.lock().values().for_each(|line| held.extend_from_slice(line.holders()));
        }
        held
    }

    /// Records that this process holds a lock that the nodes have granted.
    ///
    /// # Errors
    ///
    /// Returns the refusal because of a valid lock of this process that conflicts with it: the nodes have forgotten a lock on
    /// which its holder still relies.
    pub(crate) fn admit(&self, held: &Arc<Holding>, scope: Option<u64>) -> Result<(), LockError> {
        let spec = held.attempt().spec();
        let conflict = |key: &LockKey, line: &KeyLine| {
            let (other, remaining) = line.conflict(spec.mode(), Instant::now)?;
            Some(refusal_by(other, key, remaining))
        };
        let mut by_key = self.lock(spec);
        // Nothing is recorded unless all keys are free. The line of the first key is looked up only once.
        for key in spec.keys().iter().skip(1) {
            if let Some(conflict) = by_key.get(key).and_then(|line| conflict(key, line)) {
                return Err(conflict);
            }
        }
        for key in spec.keys() {
            let line = by_key.entry(key.clone()).or_default();
            if let Some(conflict) = conflict(key, line) {
                return Err(conflict);
            }
            line.add_holder(Arc::clone(held));
            if held.is_open_to_readers() && !self.home.drain.has_begun() {
                line.open_window(held);
                line.join_waiting(
                    Instant::now(),
                    |open, waiter| waiter.joined(open),
                    |waiter, joined, was_in_line| {
                        if was_in_line {
                            waiter.options.name.metrics.waits_no_longer();
                        }
                        waiter.assign(joined);
                    },
                    Waiter::wake,
                );
            }
            // A quorum has granted the lock, so the outage is over.
            if line.end_outage() {
                line.wake_first(Waiter::wake);
            }
            if spec.mode() == Mode::SHARED {
                line.call_run(Waiter::wake);
            }
            line.wake_first_beside(spec.mode(), Waiter::wake);
            wake_scope(line, scope);
        }
        Ok(())
    }

    /// Records that a waiter of this scope has taken the lock that was handed over to it.
    pub(crate) fn record_taken(&self, held: &Arc<Holding>, scope: Option<u64>) {
        let spec = held.attempt().spec();
        if scope.is_some()
            && let Some(line) = self.lock(spec).get(spec.key())
        {
            wake_scope(line, scope);
        }
    }

    /// Wakes the first waiter after an exclusive holder of this process has begun to share its lock.
    pub(crate) fn wake_readers(&self, held: &Holding) {
        let spec = held.attempt().spec();
        if let Some(line) = self.lock(spec).get(spec.key()) {
            line.wake_first(Waiter::wake);
        }
    }

    /// Hands a lock that is no longer held over to the next waiter. Returns `None` if that succeeded, or if other readers of
    /// this process have joined the lock and still hold it. Otherwise returns the permit to release the lock on the nodes. A lock of several keys is never handed
    /// over, because the first waiters of its queues are different callers. During a drain, other processes are next.
    pub(crate) fn hand_over_or_permit<'a>(
        &'a self,
        held: &'a Arc<Holding>,
    ) -> Option<ReleasePermit<'a>> {
        let spec = held.attempt().spec();
        let may_hand_over = !spec.has_several_keys() && !self.home.drain.has_begun();
        let (mut by_key, mut subscribed) = (self.lock(spec), false);
        if !held.leave() {
            // Its own part of the lock has ended before.
            return None;
        }
        for key in spec.keys() {
            let Some(line) = by_key.get_mut(key) else { continue };
            // Decided under the lock under which readers join: nobody joins a lock whose last holder has left.
            if !line.leave(held, Waiter::wake) {
                drop(by_key);
                self.home.drain.record_end();
                return None;
            }
            subscribed |= line.subscribes();
            if !may_hand_over {
                continue;
            }
            let pass = |next: &Arc<Waiter>, fairness: &_| {
                hand_over(held, next, fairness, self.ballot.node_timeout)
            };
            if let Some((next, held)) = line.hand_over(held, pass, Waiter::wake) {
                next.options.name.metrics.waits_no_longer();
                next.assign(held);
                return None;
            }
        }
        Some(ReleasePermit { queues: self, held, subscribed, subscribers: Some(0) })
    }

    /// Removes a waiter from its line. If the waiter was given a lock and has not taken it, the lock goes
    /// on.
    pub(super) fn leave(&self, key: &LockKey, waiter: &Arc<Waiter>) {
        let mut by_key = self.lock(&waiter.spec);
        if let Entry::Occupied(mut occupied) = by_key.entry(key.clone()) {
            if occupied.get_mut().remove(waiter, Waiter::wake) {
                waiter.options.name.metrics.waits_no_longer();
            }
            remove_if_unused(occupied);
        }
        let handed_over = waiter.take();
        drop(by_key);
        if let Some(held) = handed_over {
            self.hand_over_or_release(&held);
        }
    }

    /// Records that a reader in no line asks no longer, and waits for no answer. If it has joined a lock and not taken it, the
    /// lock goes on.
    pub(super) fn end_question(&self, waiter: &Arc<Waiter>) {
        let mut by_key = self.lock(&waiter.spec);
        if let Entry::Occupied(mut occupied) = by_key.entry(waiter.spec.key().clone()) {
            let line = occupied.get_mut();
            line.unfollow(waiter);
            line.end_question(waiter, Waiter::wake);
            remove_if_unused(occupied);
        }
        let joined = waiter.take();
        drop(by_key);
        if let Some(held) = joined {
            self.hand_over_or_release(&held);
        }
    }

    /// Hands the lock over to the next waiter, or releases it on the nodes in the background.
    pub(crate) fn hand_over_or_release(&self, held: &Arc<Holding>) {
        if let Some(permit) = self.hand_over_or_permit(held) {
            let released = Arc::clone(held);
            let on_gone = move |votes: &Votes| released.report_gone_at_release(votes);
            self.ballot.release_in_background(held.attempt(), held.latest_expiry(), on_gone);
            drop(permit);
        }
    }

    #[cfg(any(test, feature = "unstable-simulation"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cfg(any(test, feature = "unstable-simulation"))]
    pub(crate) fn len(&self) -> usize {
        self.by_key.iter().map(|by_key| by_key.lock().len()).sum()
    }
}

/// Returns the refusal of a caller that does not queue, because of a lock of this process.
pub(super) fn refusal_of(line: &mut KeyLine, spec: &LockSpec) -> Option<LockError> {
    let (held, remaining) = line.keeps_out(spec.mode(), Instant::now)?;
    Some(refusal_by(held, spec.key(), remaining))
}

/// Returns the refusal of a request because of a lock of this process.
fn refusal_by(held: &Holding, key: &LockKey, remaining: Duration) -> LockError {
    let refusal = LockError::contended(key.clone(), Some(remaining), Votes::default());
    refusal.with_holder_if_known(held.attempt().token().label())
}

/// Wakes the waiters of a scope that holds the lock now. Otherwise they would wait for themselves.
fn wake_scope(line: &KeyLine, scope: Option<u64>) {
    if scope.is_some() {
        let own = line.entries().filter(|entry| entry.waiter.options.caller.scope == scope);
        own.for_each(|entry| Waiter::wake(&entry.waiter));
    }
}

/// Ends the subscription of a line without waiters, and removes a line without waiters and holders.
fn remove_if_unused(mut entry: OccupiedEntry<'_, LockKey, KeyLine>) {
    let line = entry.get_mut();
    line.end_if_idle();
    if line.is_empty() {
        entry.remove();
    }
}

impl Drop for ReleasePermit<'_> {
    fn drop(&mut self) {
        let spec = self.held.attempt().spec();
        let mut by_key = self.queues.lock(spec);
        for key in spec.keys() {
            let Entry::Occupied(mut entry) = by_key.entry(key.clone()) else { continue };
            let line = entry.get_mut();
            line.remove_holder(self.held);
            let this_process_subscribes = self.subscribed || line.subscribes();
            let fairness = &mut line.fairness;
            fairness.record_release(self.subscribers, this_process_subscribes, Instant::now);
            line.wake_first_after(self.held, Waiter::wake);
            remove_if_unused(entry);
        }
        drop(by_key);
        self.queues.home.drain.record_end();
    }
}
