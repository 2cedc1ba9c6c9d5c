//! The state of a held lock, shared by a guard, its views and the keeper.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ballot::{Attempt, Ballot, Extension, MinHold};
use crate::clock::{Clock, Moment};
use crate::fencing_token::FencingToken;
use crate::log_limit::LogLimit;
use crate::{telemetry, validity};

/// The position of a lock in the keeper's schedule: a time, and a number that makes the position unique.
pub(super) type Due = (Instant, u64);

/// An acquired lock, from its acquisition to its release or loss.
#[derive(Debug)]
pub(crate) struct Held {
    attempt: Arc<Attempt>,
    clock: Arc<dyn Clock>,
    /// Limits how often losses are logged as warnings. `None` logs a warning for each loss.
    log_limit: Option<Arc<LogLimit>>,
    lease: Mutex<Lease>,
    /// The holder's fencing token, once it is confirmed.
    token: OnceLock<FencingToken>,
    /// Notifies the futures of [`Held::lost`] that the state or the deadline has changed.
    changed: Notify,
    /// The number of guards that share the lock.
    guards: AtomicUsize,
    /// The next holder, if the lock was handed over. Both holders have the same attempt.
    next: Mutex<Option<Arc<Held>>>,
    /// The position in the keeper's schedule. It changes only under the schedule's lock.
    due: Mutex<Option<Due>>,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    state: HoldState,
    /// The start of the lease: the clock reading before the command was sent that set or extended it.
    since: Moment,
    expire: Duration,
    /// Whether the last extension was not confirmed.
    unconfirmed: bool,
    /// When the last requested lease runs out on the servers, whether they granted it or not.
    latest_expiry: Moment,
}

/// Whether a lock is held, released or lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldState {
    /// The lock is held, as long as validity is left.
    Held,
    /// The holder released the lock.
    Released,
    /// The lock was lost before the holder released it.
    Lost,
}

impl Held {
    pub(crate) fn new(
        attempt: Arc<Attempt>,
        clock: Arc<dyn Clock>,
        since: Moment,
        decided: Moment,
        expire: Duration,
    ) -> Self {
        // A node may have set the lock, and so started its lease, at any time until the decision.
        let latest_expiry = decided.plus(expire);
        let lease =
            Lease { state: HoldState::Held, since, expire, unconfirmed: false, latest_expiry };
        Self {
            attempt,
            clock,
            log_limit: None,
            lease: Mutex::new(lease),
            token: OnceLock::new(),
            changed: Notify::new(),
            guards: AtomicUsize::new(1),
            next: Mutex::default(),
            due: Mutex::default(),
        }
    }

    /// Limits how often losses are logged as warnings.
    pub(crate) fn with_log_limit(mut self, log_limit: &Arc<LogLimit>) -> Self {
        self.log_limit = Some(Arc::clone(log_limit));
        self
    }

    /// Returns the same lease for the next holder in this process, without the former holder's fencing token.
    /// Returns `None` if the lock is lost. The former holder must have ended its own holding before.
    pub(crate) fn for_next_holder(&self) -> Option<Arc<Self>> {
        let mut next = self.next.lock();
        let lease = *self.lease.lock();
        // A denial that arrives after the former holder's release marks only the attempt as abandoned; the
        // state is not `Lost` then.
        if lease.state == HoldState::Lost || self.attempt.is_abandoned() {
            return None;
        }
        let lease = Lease { state: HoldState::Held, ..lease };
        let passed_on = Arc::new(Self {
            attempt: Arc::clone(&self.attempt),
            clock: Arc::clone(&self.clock),
            log_limit: self.log_limit.clone(),
            lease: Mutex::new(lease),
            // The next holder gets its own fencing token.
            token: OnceLock::new(),
            changed: Notify::new(),
            guards: AtomicUsize::new(1),
            next: Mutex::default(),
            due: Mutex::default(),
        });
        *next = Some(Arc::clone(&passed_on));
        Some(passed_on)
    }

    /// Sets the holder's fencing token. A second call has no effect.
    pub(crate) fn set_token(&self, token: FencingToken) {
        let _ = self.token.set(token);
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token.get().copied()
    }

    /// Adds a guard that shares the lock. Returns false if the last guard is already gone.
    pub(crate) fn add_guard(&self) -> bool {
        let more = |guards: usize| (guards > 0).then_some(guards + 1);
        self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Removes a guard, and returns whether it was the last.
    pub(crate) fn remove_guard(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Keeps the lock on the nodes for the minimum hold time from `since`, even if the last guard releases it
    /// earlier. Never shortens an earlier call's time.
    pub(crate) fn set_min_hold(&self, min_hold: MinHold, since: Moment) {
        match min_hold {
            MinHold::For(time) => self.attempt.keep_until(since.plus(time), &self.clock),
            MinHold::UntilExpiry => self.attempt.keep_until_expiry(),
        }
    }

    /// Returns whether the lock stays on the nodes until this moment, even if it is released at once.
    pub(crate) fn is_kept_until(&self, moment: Moment) -> bool {
        let Lease { since, expire, .. } = *self.lease.lock();
        self.attempt.is_kept_until(moment) && since.plus(expire).has_reached(moment)
    }

    /// Returns whether the holder has released the lock and the lock stays on the nodes until its lease runs
    /// out.
    pub(crate) fn is_left_to_expire(&self) -> bool {
        // After a hand-over, the next holder uses the same attempt.
        let is_last = self.next.lock().is_none();
        is_last && self.state() == HoldState::Released && self.attempt.is_kept_until_expiry()
    }

    /// Returns how much time has passed since `moment`.
    pub(crate) fn time_since(&self, moment: Moment) -> Duration {
        self.clock.now().since(moment)
    }

    /// Returns the length of the present lease.
    pub(crate) fn expire(&self) -> Duration {
        self.lease.lock().expire
    }

    /// Returns the rest of the lease, regardless of its present holder.
    pub(crate) fn lease_remaining(&self) -> Duration {
        let lease = *self.lease.lock();
        validity::remaining(lease.expire, self.clock.now().since(lease.since))
    }

    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    /// Returns how long the holder may still rely on the lock. The deadline is compared with the clock at
    /// each use (every lock has a deadline): in a process that was stopped, a flag that a task sets would be
    /// stale.
    pub(crate) fn remaining(&self) -> Duration {
        self.remaining_at(self.clock.now())
    }

    fn remaining_at(&self, now: Moment) -> Duration {
        let lease = *self.lease.lock();
        match lease.state {
            HoldState::Held => validity::remaining(lease.expire, now.since(lease.since)),
            HoldState::Released | HoldState::Lost => Duration::ZERO,
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    pub(crate) fn state(&self) -> HoldState {
        self.lease.lock().state
    }

    /// Returns the time until which a node may hold the lock for this attempt.
    pub(crate) fn latest_expiry(&self) -> Moment {
        self.lease.lock().latest_expiry
    }

    /// Returns whether the lease will have run out on every node after this time from now.
    pub(crate) fn expires_within(&self, time: Duration) -> bool {
        self.clock.now().plus(time).has_reached(self.latest_expiry())
    }

    /// Asks the nodes to extend the lease. They may grant the extension although their replies get lost.
    pub(crate) async fn extend(&self, ballot: &Ballot, expire: Duration) -> Extension {
        /// A node may grant the lease at any time until the ballot has ended or is dropped.
        struct RecordExpiry<'a>(&'a Held, Duration);

        impl Drop for RecordExpiry<'_> {
            fn drop(&mut self) {
                self.0.raise_latest_expiry(self.0.clock.now().plus(self.1));
            }
        }

        self.raise_latest_expiry(self.clock.now().plus(ballot.node_timeout).plus(expire));
        let _record_expiry = RecordExpiry(self, expire);
        ballot.extend(&self.attempt, expire).await
    }

    fn raise_latest_expiry(&self, latest_expiry: Moment) {
        let mut lease = self.lease.lock();
        if !lease.latest_expiry.has_reached(latest_expiry) {
            lease.latest_expiry = latest_expiry;
        }
    }

    /// Records that a quorum has extended the lease, and returns whether the extension came in time. An
    /// extension never shortens the lease: of two concurrent extensions, the later deadline wins. An
    /// extension never revives a lost lock, because the loss may already have been reported to the holder.
    pub(crate) fn record_extension(&self, since: Moment, expire: Duration) -> bool {
        let mut lease = self.lease.lock();
        let now = self.clock.now();
        let left = |since, expire| validity::remaining(expire, now.since(since));
        let left_before = left(lease.since, lease.expire);
        if lease.state != HoldState::Held || left_before.is_zero() {
            return false;
        }
        lease.unconfirmed = false;
        if left(since, expire) > left_before {
            lease.since = since;
            lease.expire = expire;
            drop(lease);
            self.changed.notify_waiters();
        }
        true
    }

    /// Records that an extension was not confirmed.
    pub(crate) fn record_unconfirmed(&self) {
        self.lease.lock().unconfirmed = true;
    }

    /// Returns whether the last extension was not confirmed.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.lease.lock().unconfirmed
    }

    /// Ends the holding because the holder releases the lock. If the validity is already over, the lock
    /// counts as lost, and the loss is reported (loss is never silent). Returns the time of the end.
    pub(crate) fn end_by_holder(&self) -> Moment {
        let now = self.clock.now();
        if self.remaining_at(now).is_zero() {
            self.lose("the lease ran out before the lock was released");
        } else {
            self.end(HoldState::Released);
        }
        now
    }

    /// Ends the holding because the lock is lost, and reports the loss once (loss is never silent).
    pub(crate) fn lose(&self, reason: &'static str) {
        if self.end(HoldState::Lost) {
            self.attempt.abandon();
            telemetry::lost();
            // Each loss emits one event. When thousands of locks are lost at once, a single warning
            // represents them.
            let key = self.attempt.key();
            let limit = self.log_limit.as_ref();
            if let Some(suppressed) = limit.map_or(Some(0), |limit| limit.admit("lost", "")) {
                tracing::warn!(%key, reason, suppressed, "a lock was lost");
            } else {
                tracing::debug!(%key, reason, "a lock was lost");
            }
        }
    }

    /// Ends the holding because a quorum of nodes has denied the attempt. Later holders of the same attempt,
    /// after hand-overs, have lost the lock as well, and their losses are reported, too (loss is never
    /// silent).
    pub(crate) fn lose_all(self: &Arc<Self>) {
        // Abandoned first, so that no hand-over starts from now on.
        self.attempt.abandon();
        let mut held = Arc::clone(self);
        loop {
            held.lose("a quorum of nodes no longer holds the lock");
            let Some(next) = held.next.lock().clone() else { return };
            held = next;
        }
    }

    /// Ends the holding of a lock that was handed over, but not taken over successfully.
    pub(crate) fn discard(&self) {
        self.attempt.abandon();
        self.end(HoldState::Lost);
    }

    /// Ends the holding. Returns whether this call ended it.
    fn end(&self, state: HoldState) -> bool {
        let mut lease = self.lease.lock();
        if lease.state != HoldState::Held {
            return false;
        }
        lease.state = state;
        drop(lease);
        self.changed.notify_waiters();
        true
    }

    /// Sets the position in the keeper's schedule, and returns the previous position.
    pub(super) fn set_due(&self, due: Option<Due>) -> Option<Due> {
        std::mem::replace(&mut *self.due.lock(), due)
    }

    /// Resolves when the lock is lost; never resolves if it is released before.
    pub(crate) async fn lost(self: Arc<Self>) {
        /// The longest sleep between two readings of the clock. The runtime's timers stop while the machine
        /// is suspended.
        const LONGEST_SLEEP: Duration = Duration::from_secs(1);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.state() {
                HoldState::Lost => return,
                HoldState::Released => std::future::pending::<()>().await,
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
