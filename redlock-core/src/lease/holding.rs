//! The state of a held lock, shared by a guard, its views and the keeper.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::hints::Hints;
use super::siblings::{JOIN_WINDOW, Part, Siblings};
use crate::ballot::{Attempt, Ballot};
use crate::caller_id::CallerId;
use crate::clock::Moment;
use crate::counters::{Counters, RecordedLoss};
use crate::error::{HoldError, InvalidOption, LossCause, LostError, Votes};
use crate::fencing_token::FencingToken;
use crate::lock::LockName;
use crate::log_limit::LogLimit;
use crate::log_limited;
use crate::node::Op;
use crate::options::MinHold;
use crate::telemetry::{self, Hold, HoldEnd, Named};
use crate::validity;

/// The reason of a loss that was found when the lease was over.
pub(super) const RAN_OUT: &str = "the lease ran out before the lock was released";
/// The event that finds the loss of a lock that an operator breaks.
pub(super) const BREAK: &str = "break";

/// The position of a lock in the keeper's schedule: a time, and a number that makes the position unique.
pub(super) type Due = (Instant, u64);

/// An acquired lock, from its acquisition to its release or loss.
#[derive(Debug)]
pub(crate) struct Holding {
    /// The attempt that holds the lock on the nodes, with its lease. A hand-over passes it on.
    attempt: Arc<Attempt>,
    /// The caller that has acquired the lock.
    caller: CallerId,
    /// The name of the lock, as its caller has given it.
    name: Named,
    /// Limits how often losses are logged as warnings.
    log_limit: Arc<LogLimit>,
    counters: Arc<Counters>,
    /// Locked before the lease of the attempt, and before `hold`.
    state: Mutex<HoldState>,
    /// The reader's part of the lock, if other readers may share it.
    part: Option<Box<Part<Self>>>,
    /// The metrics and the span of the hold, from the first guard to the end.
    hold: Mutex<Option<Hold>>,
    /// The holder's fencing token, once it is confirmed.
    token: OnceLock<FencingToken>,
    /// The number of guards that have joined the lock.
    guards: AtomicUsize,
    /// The index among the holders of the key in this process. It changes only under the lock of the queues.
    index: AtomicUsize,
    /// How often the lease was extended.
    extensions: AtomicU32,
    /// The position in the keeper's schedule. It changes only under the schedule's lock.
    due: Mutex<Option<Due>>,
    /// The hints of the nodes that the lock is gone, once the holder wants to learn of its loss.
    hints: OnceLock<Box<Hints>>,
}

/// Whether a holder has its lock, and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldState {
    /// The lock is held, as long as validity is left.
    Held,
    /// The holder released the lock.
    Released,
    /// The holder released the lock, and the next holder in this process has it.
    HandedOver,
    /// The lock was lost before the holder released it.
    Lost(LossCause),
}

impl Holding {
    /// Returns a new holder of an attempt that the nodes have granted. `log_limit` limits how often losses are logged as
    /// warnings.
    pub(crate) fn new(
        attempt: &Arc<Attempt>,
        caller: CallerId,
        name: &Named,
        log_limit: &Arc<LogLimit>,
        counters: &Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new(Self::of(attempt, caller, name, log_limit, counters))
    }

    /// Returns a new holder of an attempt that the nodes have granted to a reader. Further readers may join the lock. The
    /// holder's own part of it lasts for `lasts` from its acquisition; `None` if it ends with the lease only.
    pub(crate) fn of_reader(
        attempt: &Arc<Attempt>,
        caller: CallerId,
        name: &Named,
        log_limit: &Arc<LogLimit>,
        counters: &Arc<Counters>,
        lasts: Option<Duration>,
    ) -> Arc<Self> {
        let held = Self::of(attempt, caller, name, log_limit, counters);
        // As if the lock had been acquired for this reader alone.
        let part = Part::first(attempt.begun(), lasts);
        Arc::new(Self { part: Some(Box::new(part)), ..held })
    }

    /// Returns a further holder of the lock, for a reader that joins it. Its own part of the lock lasts for `lasts` from
    /// now. The caller has checked that the lock [may be joined](Self::may_be_joined).
    pub(crate) fn for_reader(
        self: &Arc<Self>,
        caller: CallerId,
        name: &Named,
        lasts: Option<Duration>,
    ) -> Arc<Self> {
        let new = || {
            let siblings = Siblings::default();
            siblings.add(self);
            Arc::new(siblings)
        };
        let part = self.part.as_ref();
        let siblings = part.map_or_else(new, |part| Arc::clone(part.siblings.get_or_init(new)));
        let part = Part::joined(self.now(), lasts, Arc::clone(&siblings));
        let held = Self::of(&self.attempt, caller, name, &self.log_limit, &self.counters);
        let held = Arc::new(Self { part: Some(Box::new(part)), ..held });
        siblings.add(&held);
        held
    }

    fn of(
        attempt: &Arc<Attempt>,
        caller: CallerId,
        name: &Named,
        log_limit: &Arc<LogLimit>,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            attempt: Arc::clone(attempt),
            caller,
            name: name.clone(),
            log_limit: Arc::clone(log_limit),
            counters: Arc::clone(counters),
            state: Mutex::new(HoldState::Held),
            part: None,
            hold: Mutex::default(),
            token: OnceLock::new(),
            guards: AtomicUsize::new(1),
            index: AtomicUsize::new(0),
            extensions: AtomicU32::new(0),
            due: Mutex::default(),
            hints: OnceLock::new(),
        }
    }

    /// Returns whether a reader that asks for this lease may join the lock now: its acquisition began a moment ago, it has at
    /// least this lease, and it is still valid and wanted by nobody for longer than its holders want it. The caller has checked
    /// that the lock has a holder.
    pub(crate) fn may_be_joined(&self, expire: Duration) -> bool {
        if self.part.is_none() || self.attempt.is_abandoned() || self.attempt.is_kept() {
            return false;
        }
        let (lease, now) = (*self.attempt.lease(), self.now());
        now.since(self.attempt.begun()) < JOIN_WINDOW
            && expire <= lease.expire
            && !lease.remaining(now).is_zero()
    }

    /// Returns whether further readers may join the lock that this holder has acquired.
    pub(crate) fn is_open_to_readers(&self) -> bool {
        self.part.as_ref().is_some_and(|part| !part.is_joined)
    }

    /// Records that the holder leaves the lock that it shares. Returns false if it has left before.
    pub(crate) fn leave(&self) -> bool {
        self.part.as_ref().is_none_or(|part| !part.has_left.swap(true, Ordering::AcqRel))
    }

    /// Returns whether the holder's own part of the lock has ended, and the lock goes on for other readers.
    pub(super) fn is_outlived(&self) -> bool {
        self.part.is_some()
            && matches!(self.state(), HoldState::Lost(_))
            && !self.lease_remaining().is_zero()
    }

    /// Returns whether the holder has joined the lock of another reader.
    pub(crate) fn has_joined(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.is_joined)
    }

    /// Returns the holders that share the lock on the nodes, with this one.
    pub(super) fn siblings(self: &Arc<Self>) -> Vec<Arc<Self>> {
        self.shared_renewal().map_or_else(|| vec![Arc::clone(self)], Siblings::all)
    }

    /// Returns who of the holders renews the lock; `None` if it has only one.
    pub(super) fn shared_renewal(&self) -> Option<&Siblings<Self>> {
        self.part.as_ref()?.siblings.get().map(|siblings| &**siblings)
    }

    /// Returns the same lock for the next holder in this process. Returns `None` if the lock is lost. The former
    /// holder must have ended its own holding before.
    pub(crate) fn for_next_holder(&self, caller: CallerId, name: &Named) -> Option<Arc<Self>> {
        // A denial that arrives after the former holder's release marks only the attempt as abandoned; the
        // state is not `Lost` then.
        let mut state = self.state.lock();
        if matches!(*state, HoldState::Lost(_)) || self.attempt.is_abandoned() {
            return None;
        }
        *state = HoldState::HandedOver;
        self.attempt.lease().hand_overs += 1;
        Some(Self::new(&self.attempt, caller, name, &self.log_limit, &self.counters))
    }

    /// Records that the holder gets its guard: metrics count the lock from now on, until its end.
    #[inline]
    pub(crate) fn begin(&self) {
        // Under the lock of the state, so that an end that comes first is not missed.
        let state = self.state.lock();
        if *state == HoldState::Held {
            *self.hold.lock() = Some(Hold::begin(&self.name));
        }
    }

    /// Sets the holder's fencing token. A second call has no effect.
    pub(crate) fn set_token(&self, token: FencingToken) {
        let _ = self.token.set(token);
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token.get().copied()
    }

    /// Adds a guard that joins the lock. Returns false if the last guard is already gone.
    pub(crate) fn add_guard(&self) -> bool {
        // A downgrade counts the guards under this lock, and a new guard looks at the mode afterwards.
        let _state = self.state.lock();
        let more = |guards: usize| (guards > 0).then_some(guards + 1);
        self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Shares the lock from now on, and returns the operation for the nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock has ended, or if another guard of the scope relies on the exclusive lock.
    pub(crate) fn begin_downgrade(&self) -> Result<Op, HoldError> {
        let state = self.state.lock();
        if *state != HoldState::Held {
            drop(state);
            return Err(self.loss(Votes::default()).into());
        }
        if !self.attempt.is_downgraded() && self.guards.load(Ordering::Acquire) > 1 {
            let message = "a lock on which another guard of the same scope relies cannot be shared";
            return Err(InvalidOption::conflict("shared", message).into());
        }
        let downgrade = self.attempt.downgrade();
        drop(state);
        // The key of a shared lock changes with each of its holders.
        self.end_hints();
        Ok(downgrade)
    }

    /// Returns the number of guards that have joined the lock.
    pub(crate) fn guards(&self) -> usize {
        self.guards.load(Ordering::Relaxed)
    }

    /// Returns how often the lease was extended by this holder.
    pub(crate) fn extensions(&self) -> u32 {
        self.extensions.load(Ordering::Relaxed)
    }

    /// Removes a guard, and returns whether it was the last.
    pub(crate) fn remove_guard(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Keeps the lock on the nodes for the minimum hold time from `since`, even if the last guard releases it
    /// earlier. Never shortens an earlier call's time.
    pub(crate) fn set_min_hold(&self, min_hold: MinHold, since: Moment) {
        match min_hold {
            MinHold::For(time) => self.attempt.keep_until(since.plus(time)),
            MinHold::UntilExpiry => self.attempt.keep_until_expiry(),
        }
    }

    /// Returns whether the holder has released the lock and the lock stays on the nodes until its lease runs
    /// out.
    pub(crate) fn is_left_to_expire(&self) -> bool {
        self.state() == HoldState::Released && self.attempt.is_kept_until_expiry()
    }

    /// Returns the rest of the lease, regardless of its present holder.
    pub(crate) fn lease_remaining(&self) -> Duration {
        let lease = *self.attempt.lease();
        lease.remaining(self.now())
    }

    pub(crate) fn caller(&self) -> CallerId {
        self.caller
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_str()
    }

    pub(crate) fn lock_name(&self) -> &LockName {
        &self.name.name
    }

    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    pub(crate) fn now(&self) -> Moment {
        self.attempt.clock.now()
    }

    /// Returns how long the holder may still rely on the lock. The deadline is compared with the clock at
    /// each use (every lock has a deadline): in a process that was stopped, a flag that a task sets would be
    /// stale.
    pub(crate) fn remaining(&self) -> Duration {
        self.remaining_at(self.now())
    }

    pub(crate) fn remaining_at(&self, now: Moment) -> Duration {
        let state = self.state.lock();
        match *state {
            HoldState::Held => self.rest(now),
            _ => Duration::ZERO,
        }
    }

    /// Returns the rest of the lease, or of the holder's own part of it.
    fn rest(&self, now: Moment) -> Duration {
        let rest = self.attempt.lease().remaining(now);
        // Most locks end with their lease.
        self.part.as_ref().map_or(rest, |part| rest.min(now.time_until(*part.ends.lock())))
    }

    pub(crate) fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    pub(crate) fn state(&self) -> HoldState {
        *self.state.lock()
    }

    /// Returns how long ago the lease began, if it is at least this long.
    pub(super) fn lease_age(&self, expire: Duration) -> Option<Duration> {
        let lease = *self.attempt.lease();
        (lease.expire >= expire).then(|| self.now().since(lease.since))
    }

    /// Returns the time until which a node may hold the lock for this attempt.
    pub(crate) fn latest_expiry(&self) -> Moment {
        self.attempt.lease().latest_expiry
    }

    /// Returns whether the lease will have run out on every node after this time from now.
    pub(crate) fn expires_within(&self, time: Duration) -> bool {
        self.now().plus(time).has_reached(self.latest_expiry())
    }

    /// Asks the nodes to extend the lease. They may grant the extension although their replies get lost.
    pub(crate) async fn extend(
        &self,
        ballot: &Ballot,
        expire: Duration,
    ) -> Result<Moment, HoldError> {
        /// A node may grant the lease at any time until the ballot has ended or is dropped.
        struct RecordExpiry<'a>(&'a Holding, Duration);

        impl Drop for RecordExpiry<'_> {
            fn drop(&mut self) {
                let latest = self.0.now().plus(self.1);
                self.0.attempt.lease().raise_latest_expiry(latest);
            }
        }

        let latest = self.now().plus(ballot.node_timeout).plus(expire);
        self.attempt.lease().raise_latest_expiry(latest);
        let _record_expiry = RecordExpiry(self, expire);
        self.attempt.last_extension.begin(self.now());
        let extended = ballot.extend(&self.attempt, expire).await;
        if let Err(HoldError::Unavailable { votes, .. }) = &extended {
            self.attempt.last_extension.fail(votes);
        }
        extended
    }

    /// Records that a quorum has extended the lease to `expire` from `since`, and returns whether the extension came in time. An
    /// extension never shortens the lease, and never revives a lost lock, because the loss may already have been
    /// reported to the holder.
    pub(crate) fn record_extension(&self, since: Moment, expire: Duration) -> bool {
        let state = self.state.lock();
        let mut ends = self.part.as_ref().map(|part| part.ends.lock());
        let mut lease = self.attempt.lease();
        let now = self.now();
        let has_ended = ends.as_ref().is_some_and(|ends| now.has_reached(**ends));
        let is_in_time = *state == HoldState::Held && !lease.remaining(now).is_zero() && !has_ended;
        self.attempt.last_extension.confirm(is_in_time);
        if !is_in_time {
            return false;
        }
        self.extensions.fetch_add(1, Ordering::Relaxed);
        if let Some(ends) = &mut ends {
            **ends = (**ends).max(since.plus(validity::remaining(expire, Duration::ZERO)));
        }
        if lease.extend(now, since, expire) {
            drop((lease, ends, state));
            self.attempt.changed.notify_waiters();
        }
        true
    }

    /// Ends the holding because the holder releases the lock. If the validity is already over, the lock
    /// counts as lost, and the loss is reported (loss is never silent), after `before_loss`. Returns the time of the end.
    pub(crate) fn end_by_holder(&self, before_loss: impl FnOnce()) -> Moment {
        let now = self.now();
        if self.remaining_at(now).is_zero() {
            before_loss();
            self.lose("release", LossCause::LeaseEnded, RAN_OUT);
        } else {
            self.end(HoldState::Released, Some(HoldEnd::Released));
        }
        now
    }

    /// Ends the holding because the lock is lost, and reports the loss once (loss is never silent). `found` is the event
    /// by which the loss was found.
    pub(crate) fn lose(&self, found: &'static str, cause: LossCause, reason: &'static str) {
        let end = if found == BREAK { HoldEnd::Broken } else { HoldEnd::Lost };
        if self.end(HoldState::Lost(cause), Some(end)) {
            if self.lease_remaining().is_zero() {
                self.attempt.abandon();
            }
            self.report_loss(found, reason);
        }
    }

    /// Reports the loss of a lock that the nodes no longer had when the holder released it, unless the loss was found
    /// before.
    pub(crate) fn report_gone_at_release(&self, votes: &Votes) {
        if self.state() == HoldState::Released {
            self.attempt.last_extension.fail(votes);
            self.report_loss("release", "a quorum of nodes no longer had the lock");
        }
    }

    fn report_loss(&self, found: &'static str, reason: &'static str) {
        telemetry::lost(1);
        let (key, unconfirmed) = (self.attempt.key(), self.attempt.last_extension.unconfirmed());
        let (unconfirmed, at) = (unconfirmed.unwrap_or_default(), self.now());
        let reason = unconfirmed.explain(reason, at);
        self.counters.record_loss(RecordedLoss {
            key: key.clone(),
            name: self.lock_name().clone(),
            holder: self.attempt.holder_id(),
            at,
            reason: reason.clone(),
        });
        let votes = unconfirmed.votes.as_ref().map(tracing::field::display);
        // Each loss emits one event. When thousands of locks are lost at once, a single warning represents them.
        log_limited!(self.log_limit, "lost", "", warn, lock = %key, found, reason, votes, "a lock was lost");
    }

    /// Returns the loss of a lock that is not valid any more, with the votes of the last extension that no quorum has confirmed.
    pub(crate) fn last_loss(&self) -> LostError {
        let unconfirmed = self.attempt.last_extension.unconfirmed();
        self.loss(unconfirmed.and_then(|unconfirmed| unconfirmed.votes).unwrap_or_default())
    }

    /// Returns the loss of a lock that is not valid any more, with the votes that have led to it.
    pub(crate) fn loss(&self, votes: Votes) -> LostError {
        let cause = match self.state() {
            // Only its lease is over.
            HoldState::Held => LossCause::LeaseEnded,
            HoldState::Released | HoldState::HandedOver => LossCause::Released,
            HoldState::Lost(cause) => cause,
        };
        LostError::new(self.attempt.key().clone(), cause, votes)
    }

    /// Ends the holding of a lock that was handed over or joined, but could not be taken. Other readers may rely on a lock that
    /// was joined.
    pub(crate) fn discard(&self) {
        if !self.has_joined() {
            self.attempt.abandon();
        }
        self.end(HoldState::Lost(LossCause::LeaseEnded), None);
    }

    /// Ends the holding. Returns whether this call ended it. Metrics do not have the duration of a hold without an `end`: its
    /// holder never had the lock.
    fn end(&self, state: HoldState, end: Option<HoldEnd>) -> bool {
        let mut present = self.state.lock();
        if *present != HoldState::Held {
            return false;
        }
        *present = state;
        drop(present);
        self.end_hints();
        let hold = self.hold.lock().take();
        if let Some((hold, end)) = hold.zip(end) {
            hold.end(end, self.extensions(), self.token().map(FencingToken::number));
        }
        if matches!(state, HoldState::Lost(_)) {
            self.attempt.changed.notify_waiters();
        }
        true
    }

    /// Begins to listen to the hints of the nodes. Returns `None` after the first call.
    pub(super) fn begin_hints(&self) -> Option<&Hints> {
        let mut is_first = false;
        let hints = self.hints.get_or_init(|| {
            is_first = true;
            Box::default()
        });
        is_first.then_some(hints)
    }

    /// Returns the hints of the nodes, if the holder listens to them.
    pub(super) fn hints(&self) -> Option<&Hints> {
        self.hints.get().map(|hints| &**hints)
    }

    fn end_hints(&self) {
        if let Some(hints) = self.hints() {
            hints.end();
        }
    }

    /// Returns the index among the holders of the key in this process.
    pub(crate) fn index(&self) -> usize {
        self.index.load(Ordering::Relaxed)
    }

    pub(crate) fn set_index(&self, index: usize) {
        self.index.store(index, Ordering::Relaxed);
    }

    /// Returns the position in the keeper's schedule.
    pub(super) fn due(&self) -> Option<Due> {
        *self.due.lock()
    }

    /// Sets the position in the keeper's schedule, and returns the previous position.
    pub(super) fn set_due(&self, due: Option<Due>) -> Option<Due> {
        std::mem::replace(&mut *self.due.lock(), due)
    }

    /// Resolves when the lock is lost; never resolves if it is released before.
    pub(crate) async fn lost(self: &Arc<Self>) {
        /// The longest sleep between two readings of the clock. The runtime's timers stop while the machine
        /// is suspended.
        const LONGEST_SLEEP: Duration = Duration::from_secs(1);
        loop {
            let changed = self.attempt.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.state() {
                HoldState::Lost(_) => return,
                HoldState::Released | HoldState::HandedOver => std::future::pending().await,
                HoldState::Held => {}
            }
            let remaining = self.remaining();
            if remaining.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(remaining.min(LONGEST_SLEEP)) => {}
            }
        }
    }
}
