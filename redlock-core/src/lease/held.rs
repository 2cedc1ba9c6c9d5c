//! What a guard, its views and the keeper share.

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

/// Where a lock stands in the keeper's ledger: a time, and a number that makes it unique.
pub(super) type Due = (Instant, u64);

/// A lock that was acquired.
#[derive(Debug)]
pub(crate) struct Held {
    attempt: Arc<Attempt>,
    clock: Arc<dyn Clock>,
    /// How often losses are logged as warnings: each one where there is no limit.
    log_limit: Option<Arc<LogLimit>>,
    term: Mutex<Term>,
    /// The holder's number, from when it is confirmed.
    token: OnceLock<FencingToken>,
    /// Tells those who wait for the loss that the state or the deadline has changed.
    changed: Notify,
    /// How many guards share it.
    guards: AtomicUsize,
    /// Whom the lock was handed on to, with the same attempt.
    next: Mutex<Option<Arc<Held>>>,
    /// Where it stands in the keeper's ledger; changed under the ledger's lock only.
    due: Mutex<Option<Due>>,
}

#[derive(Debug, Clone, Copy)]
struct Term {
    state: State,
    /// What the lease counts from: before the question was sent that granted it.
    since: Moment,
    expire: Duration,
    /// Whether the last extension was not confirmed.
    unconfirmed: bool,
    /// When the last lease that was asked for runs out on the servers, granted or not.
    runs_out: Moment,
}

/// What has become of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It is held, as long as validity is left.
    Held,
    /// Its holder gave it back.
    Released,
    /// It was lost before its holder gave it back.
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
        // A node may have answered, and so begun its lease, up to then.
        let runs_out = decided.after(expire);
        let term = Term { state: State::Held, since, expire, unconfirmed: false, runs_out };
        Self {
            attempt,
            clock,
            log_limit: None,
            term: Mutex::new(term),
            token: OnceLock::new(),
            changed: Notify::new(),
            guards: AtomicUsize::new(1),
            next: Mutex::default(),
            due: Mutex::default(),
        }
    }

    /// Limits how often losses are logged as warnings.
    pub(crate) fn limited_by(mut self, log_limit: &Arc<LogLimit>) -> Self {
        self.log_limit = Some(Arc::clone(log_limit));
        self
    }

    /// The same lease for the next holder in this process, without the former holder's number; `None`
    /// if it is lost. The former holder has ended its own holding before.
    pub(crate) fn hand_over(&self) -> Option<Arc<Self>> {
        let mut next = self.next.lock();
        let term = *self.term.lock();
        // What the nodes have denied since the holder ended is given up, and not lost for it.
        if term.state == State::Lost || self.attempt.is_abandoned() {
            return None;
        }
        let term = Term { state: State::Held, ..term };
        let passed_on = Arc::new(Self {
            attempt: Arc::clone(&self.attempt),
            clock: Arc::clone(&self.clock),
            log_limit: self.log_limit.clone(),
            term: Mutex::new(term),
            // The next holder gets one of its own.
            token: OnceLock::new(),
            changed: Notify::new(),
            guards: AtomicUsize::new(1),
            next: Mutex::default(),
            due: Mutex::default(),
        });
        *next = Some(Arc::clone(&passed_on));
        Some(passed_on)
    }

    /// Numbers the holder. It keeps its first number.
    pub(crate) fn set_token(&self, token: FencingToken) {
        let _ = self.token.set(token);
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token.get().copied()
    }

    /// Lets one more guard share the lock; fails when the last one has gone.
    pub(crate) fn share(&self) -> bool {
        let more = |guards: usize| (guards > 0).then_some(guards + 1);
        self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Notes that a guard goes, and returns whether it was the last.
    pub(crate) fn unshare(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Lets the lock stay on the nodes for so long from `since` on, although the last guard releases it
    /// before. Never shortens that.
    pub(crate) fn stay(&self, min_hold: MinHold, since: Moment) {
        match min_hold {
            MinHold::For(time) => self.attempt.stay_until(since.after(time), &self.clock),
            MinHold::UntilExpiry => self.attempt.stay_until_expiry(),
        }
    }

    /// Whether the lock stays on the nodes until then, even if it is released at once.
    pub(crate) fn stays_until(&self, moment: Moment) -> bool {
        let Term { since, expire, .. } = *self.term.lock();
        self.attempt.stays_until(moment) && since.after(expire).until(moment).is_zero()
    }

    /// Whether its holder has released it and it stays on the nodes until its lease runs out.
    pub(crate) fn is_left_to_expire(&self) -> bool {
        // The attempt may be kept by a later holder.
        let is_last = self.next.lock().is_none();
        is_last && self.state() == State::Released && self.attempt.stays_until_expiry()
    }

    /// The lease that was asked for last.
    pub(crate) fn expire(&self) -> Duration {
        self.term.lock().expire
    }

    /// What is left of the lease, whoever holds it now.
    pub(crate) fn lease_remaining(&self) -> Duration {
        let term = *self.term.lock();
        validity::remaining(term.expire, self.clock.now().since(term.since))
    }

    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    /// How long the holder may still believe in the lock. Compared with the clock at each use
    /// (invariant 4): a flag that a task sets is stale in a process that was stopped.
    pub(crate) fn remaining(&self) -> Duration {
        let term = *self.term.lock();
        match term.state {
            State::Held => validity::remaining(term.expire, self.clock.now().since(term.since)),
            State::Released | State::Lost => Duration::ZERO,
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    pub(crate) fn state(&self) -> State {
        self.term.lock().state
    }

    /// Until when a node may hold the lock for it.
    pub(crate) fn runs_out(&self) -> Moment {
        self.term.lock().runs_out
    }

    /// Whether no node can hold the lock for it for longer than this time from now.
    pub(crate) fn runs_out_within(&self, time: Duration) -> bool {
        self.clock.now().after(time).until(self.runs_out()).is_zero()
    }

    /// Asks the nodes to extend the lease. They may grant the extension although the answer gets lost.
    pub(crate) async fn extend(&self, ballot: &Ballot, expire: Duration) -> Extension {
        /// A node may grant the lease until the ballot has ended, or was dropped.
        struct Extending<'a>(&'a Held, Duration);

        impl Drop for Extending<'_> {
            fn drop(&mut self) {
                self.0.may_run_out_at(self.0.clock.now().after(self.1));
            }
        }

        self.may_run_out_at(self.clock.now().after(ballot.node_timeout).after(expire));
        let _extending = Extending(self, expire);
        ballot.extend(&self.attempt, expire).await
    }

    fn may_run_out_at(&self, runs_out: Moment) {
        let mut term = self.term.lock();
        if term.runs_out.until(runs_out) > Duration::ZERO {
            term.runs_out = runs_out;
        }
    }

    /// Notes that a quorum has extended the lease, and returns whether that came in time. An
    /// extension never shortens: two that cross each other leave the later deadline. And it does
    /// not bring back what has been seen to be lost: the holder may have been told.
    pub(crate) fn extended(&self, since: Moment, expire: Duration) -> bool {
        let mut term = self.term.lock();
        let now = self.clock.now();
        let left = |since, expire| validity::remaining(expire, now.since(since));
        let left_before = left(term.since, term.expire);
        if term.state != State::Held || left_before.is_zero() {
            return false;
        }
        term.unconfirmed = false;
        if left(since, expire) > left_before {
            term.since = since;
            term.expire = expire;
            drop(term);
            self.changed.notify_waiters();
        }
        true
    }

    /// Notes that an extension was not confirmed.
    pub(crate) fn not_extended(&self) {
        self.term.lock().unconfirmed = true;
    }

    /// Whether the last extension was not confirmed.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.term.lock().unconfirmed
    }

    /// Ends the holding because the holder gives the lock back. A lock whose validity was over by
    /// then was lost, and that is said (invariant 8).
    pub(crate) fn give_back(&self) {
        if self.is_valid() {
            self.end(State::Released);
        } else {
            self.lose("its lease ran out before it was released");
        }
    }

    /// Ends the holding because the lock is lost, and says so, once (invariant 8).
    pub(crate) fn lose(&self, reason: &'static str) {
        if self.end(State::Lost) {
            self.attempt.abandon();
            telemetry::lost();
            // One event per loss. When thousands of locks are lost at once, one warning stands for them.
            let key = self.attempt.key();
            let limit = self.log_limit.as_ref();
            if let Some(suppressed) = limit.map_or(Some(0), |limit| limit.pass("lost", "")) {
                tracing::warn!(%key, reason, suppressed, "a lock was lost");
            } else {
                tracing::debug!(%key, reason, "a lock was lost");
            }
        }
    }

    /// Ends the holding because a quorum of nodes has denied the attempt. Whoever the lock was handed on
    /// to has lost it as well, and is told (invariant 8).
    pub(crate) fn denied(self: &Arc<Self>) {
        // First, so that it is not handed on from now on.
        self.attempt.abandon();
        let mut held = Arc::clone(self);
        loop {
            held.lose("a quorum of nodes does not hold it any more");
            let Some(next) = held.next.lock().clone() else { return };
            held = next;
        }
    }

    /// Ends the holding of a lock that was handed over and never came to be held.
    pub(crate) fn discard(&self) {
        self.attempt.abandon();
        self.end(State::Lost);
    }

    /// Returns whether it had not ended before.
    fn end(&self, state: State) -> bool {
        let mut term = self.term.lock();
        if term.state != State::Held {
            return false;
        }
        term.state = state;
        drop(term);
        self.changed.notify_waiters();
        true
    }

    /// Notes where it stands in the keeper's ledger, and returns where it stood.
    pub(super) fn set_due(&self, due: Option<Due>) -> Option<Due> {
        std::mem::replace(&mut *self.due.lock(), due)
    }

    /// Resolves when the lock is lost; never if it is released before.
    pub(crate) async fn lost(self: Arc<Self>) {
        /// The timers of the runtime stand still while the machine is suspended, so none is
        /// trusted for longer.
        const LONGEST_SLEEP: Duration = Duration::from_secs(1);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.state() {
                State::Lost => return,
                State::Released => std::future::pending::<()>().await,
                State::Held => {}
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
