//! The next step of a waiter, and the choice of its pauses.
//!
//! The module `waiter` has a picture of the states of a waiter, and the table of their transitions.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::backoff::{AFTER_EXPIRY, Backoff, Patience, poll_pause, wake_retry_delay};
use super::fair::{FairPosition, FairWait};
use super::key_queue::KeyQueue;
use super::place::{LastAsk, Place};
use super::sleep::{Pause, left};
use super::waiter::WaiterState;
use crate::ballot::Standing;
use crate::error::{LockError, NodeError, Vote, Votes};
use crate::jitter::jitter;
use crate::lease::Holding;
use crate::lock::Mode;
use crate::log_limit::LogLimit;
use crate::log_limited;
use crate::quorum::quorum;

/// A wait in one queue that was shorter than this did not wait for a holder.
const SHORT_WAIT: Duration = Duration::from_millis(8);

/// The next step of a waiter.
#[derive(Debug)]
pub(crate) enum Step {
    /// It asks the nodes.
    Ask,
    /// It takes the lock that another caller of this process has handed over.
    Take(Arc<Holding>),
    /// It sleeps.
    Sleep(Pause),
}

/// The result of a look at the queue.
enum Look {
    Step(Step),
    /// Something is in its way.
    Sleep(Pause),
    /// This process holds the key at this index, in whose queue the waiter does not stand.
    MoveTo(usize),
    /// No node keeps the fair order.
    NoConductor(Votes),
}

impl Place<'_> {
    /// Returns what the caller does next.
    ///
    /// # Errors
    ///
    /// Returns the reason why the caller gives up. A caller whose waiting time is over still asks the nodes once if nothing
    /// is in its way.
    pub(crate) fn next(&mut self, deadline: Option<Instant>) -> Result<Step, LockError> {
        loop {
            self.check_drain()?;
            let is_over = left(deadline).is_zero();
            match self.look(is_over) {
                Look::Step(step) => return Ok(step),
                Look::Sleep(_) if is_over => return Err(self.timed_out()),
                Look::Sleep(pause) => return Ok(Step::Sleep(pause)),
                Look::MoveTo(key) => self.move_to(key)?,
                Look::NoConductor(votes) => {
                    self.last_ask.begun = Instant::now();
                    let key = self.waiter.spec.key().clone();
                    let error = LockError::Unavailable { key, votes };
                    if let Some(pause) = self.no_quorum(error, deadline)? {
                        return Ok(Step::Sleep(pause));
                    }
                }
            }
        }
    }

    /// Looks at the queue, under its lock from the first to the last line: other callers hand locks over to the waiter, and
    /// put others before it.
    fn look(&mut self, is_over: bool) -> Look {
        let queues = self.queues;
        let mut by_key = queues.lock(&self.waiter.spec);
        match self.waiter.state() {
            WaiterState::HandedOver(held) => {
                self.waiter.set(WaiterState::Queued);
                self.last_ask.begun = Instant::now();
                return Look::Step(Step::Take(held));
            }
            // The attempt fails, because the manager is shut down.
            _ if queues.closed.is_cancelled() => return Look::Step(Step::Ask),
            WaiterState::Queued => return Look::Sleep(Pause::Queue),
            // Its pause is over.
            WaiterState::Refused => drop(self.waiter.set(WaiterState::Called)),
            WaiterState::Called | WaiterState::Asking => {}
        }
        let mode = self.waiter.spec.mode();
        if self.waiter.spec.has_several_keys() {
            let is_held = |queue| self.blocking(queue, mode).is_some();
            let mut keys = self.waiter.spec.keys().iter();
            let held = keys.position(|key| by_key.get(key).is_some_and(is_held));
            if let Some(key) = held.filter(|key| self.at != Some(*key)) {
                return Look::MoveTo(key);
            }
        }
        let queue = self.at.and_then(|key| by_key.get_mut(self.waiter.spec.key_at(key)));
        if let Some(queue) = &queue
            && let Some(pause) = self.local_pause(queue, is_over)
        {
            return Look::Sleep(pause);
        }
        // A caller that comes in an outage finds out itself whether the outage is over, before it waits for its turn.
        let fair = self.fair.as_mut().filter(|_| self.at.is_some());
        match fair.map(FairWait::position) {
            None | Some(FairPosition::First(..)) => {}
            Some(FairPosition::Unknown) => return Look::Sleep(Pause::Fair),
            Some(FairPosition::Behind(since)) => {
                // The caller waits for a holder, as if the nodes had refused it the lock.
                self.waiting_since.get_or_insert_with(Instant::now);
                if let Some(queue) = queue {
                    queue.end_outage_before(since);
                }
                return Look::Sleep(Pause::Fair);
            }
            Some(FairPosition::NoConductor(votes)) => return Look::NoConductor(votes),
        }
        // Counted before the question: a release that is published meanwhile is not missed.
        let signal = queue.as_ref().and_then(|queue| queue.signal(mode));
        let signal = signal.map(|signal| (Arc::clone(signal), signal.counts()));
        self.last_ask = LastAsk { begun: Instant::now(), signal };
        self.waiter.set(WaiterState::Asking);
        Look::Step(Step::Ask)
    }

    /// Returns the holder of this process that keeps the waiter from asking the nodes.
    fn blocking<'q>(
        &self,
        queue: &'q KeyQueue,
        mode: Mode,
    ) -> Option<(&'q Arc<Holding>, Duration)> {
        let (held, remaining) = queue.conflict(mode)?;
        // A writer behind the readers of its own process asks the nodes: it leaves its mark there, so that they admit no
        // further readers.
        let asks = mode == Mode::Exclusive && held.attempt().spec().mode().is_shared();
        let now = Instant::now();
        match self.behind_readers_until.filter(|until| *until > now) {
            Some(until) if asks => Some((held, remaining.min(until - now))),
            None if asks => None,
            _ => Some((held, remaining)),
        }
    }

    /// Returns why a waiter that was called does not ask the nodes, as far as this process knows.
    fn local_pause(&self, queue: &KeyQueue, is_over: bool) -> Option<Pause> {
        let mode = self.waiter.spec.mode();
        if let Some((held, remaining)) = self.blocking(queue, mode) {
            if !queue.is_first(&self.waiter) {
                // The first waiter calls it again.
                self.waiter.set(WaiterState::Queued);
                return Some(Pause::Queue);
            }
            self.waiter.watch(held);
            return Some(Pause::Holder(Arc::clone(held), remaining + AFTER_EXPIRY));
        }
        if is_over {
            return None;
        }
        let now = Instant::now();
        if let Some(until) = self.not_before.filter(|until| *until > now) {
            return Some(Pause::Yield(until - now));
        }
        // A lock of several keys was refused for this key before, so it is likely to be refused again.
        if self.moved.is_some() && queue.signal(mode).is_none() {
            return Some(Pause::Subscribe);
        }
        let rest = queue.fairness.yield_remaining().filter(|_| queue.holders().is_empty())?;
        Some(Pause::Yield(rest))
    }

    /// Records that the lock was not acquired, and chooses the pause.
    ///
    /// # Errors
    ///
    /// Returns the error if the caller gives up.
    pub(crate) fn refused(
        &mut self,
        mut error: LockError,
        deadline: Option<Instant>,
    ) -> Result<Option<Pause>, LockError> {
        self.record_holder(&mut error);
        // Slow nodes do not end a wait for ever either.
        let is_too_slow = matches!(error, LockError::TimedOut { .. });
        if is_outage(&error) || is_too_slow && self.waiter.options.is_endless {
            return self.no_quorum(error, deadline);
        }
        let now = Instant::now();
        let (key, remaining, votes) = match &error {
            LockError::Contended { key, remaining, votes, .. } => (key, *remaining, votes),
            LockError::Split { key, votes } => (key, None, votes),
            _ => {
                self.record_quorum();
                return Err(error);
            }
        };
        self.waiting_since.get_or_insert(now);
        self.end_outage();
        self.record_quorum();
        if left(deadline).is_zero() {
            return Err(error);
        }
        let held_at = self.waiter.spec.index_of(key);
        let Some(at) = self.at else {
            self.moved = Some(now).filter(|_| self.waiter.spec.has_several_keys());
            self.move_to(held_at)?;
            self.record_quorum();
            return Ok(None);
        };
        if votes.is_empty() {
            // Another caller of this process relies on the lock, which the nodes have forgotten. The release of this attempt
            // is published, so the waiter does not listen.
            let pause = poll_pause(remaining.unwrap_or_default());
            self.behind_readers_until = Some(now + pause);
            self.set_if_first(WaiterState::Called);
            return Ok(None);
        }
        if !self.set_if_first(WaiterState::Refused) {
            return Ok(None);
        }
        let is_split = Standing::of_refusal(&error).is_some_and(|standing| standing.may_be_split())
            || may_hide_a_split(votes);
        let subscribed = self.is_subscribed();
        if is_split && subscribed {
            // The other callers got the remaining votes. All of them release their votes, and each
            // release wakes all waiters at once. A waiter that asked again at each wake-up would meet
            // the same callers again and again, so it pauses for a random time instead.
            return Ok(Some(Pause::Split(self.patience.limit(self.backoff.pause()))));
        }
        if held_at != at && self.waiter.spec.has_several_keys() {
            self.go_on_to(held_at)?;
            return Ok(None);
        }
        if remaining.is_some() {
            self.backoff = Backoff::new();
        }
        Ok(Some(match remaining {
            // A release that was published before the subscription was missed: ask once more.
            _ if !subscribed => Pause::Subscribe,
            Some(remaining) => Pause::Release(poll_pause(remaining)),
            None if self.ask.skip_lookup => Pause::Release(wake_retry_delay()),
            // A single node, whose votes are not split, does not know the rest of the lease.
            None if self.queues.ballot.nodes.len() == 1 => Pause::Release(self.backoff.pause()),
            None => Pause::Split(self.backoff.pause()),
        }))
    }

    /// Records the label of the holder that the nodes have reported, and adds the last one to a refusal without a look-up.
    fn record_holder(&mut self, error: &mut LockError) {
        let LockError::Contended { holder, votes, .. } = error else { return };
        if votes.is_empty() {
            // This process has the lock.
        } else if self.ask.skip_lookup && holder.is_none() {
            holder.clone_from(&self.last_holder);
        } else {
            self.last_holder.clone_from(holder);
        }
        if !votes.is_empty() {
            self.with_queue(|queue| queue.record_holder(self.last_holder.as_ref()));
        }
    }

    /// Goes on to the queue of another key, for which the nodes have refused the lock.
    fn go_on_to(&mut self, key: usize) -> Result<(), LockError> {
        let since = self.moved.max(self.not_before);
        let was_short = since.is_some_and(|since| since.elapsed() < SHORT_WAIT);
        self.moved = Some(Instant::now());
        if was_short && self.queues.ballot.nodes.len() > 1 {
            // Nodes that disagree name one key and then another. Without a pause, the caller could ask
            // them again and again without ever waiting for a holder.
            self.not_before = Some(Instant::now() + jitter(SHORT_WAIT / 2..SHORT_WAIT));
        }
        self.move_to(key)
    }

    /// Records that no quorum of nodes has answered, and chooses the pause.
    ///
    /// Only a caller that waited before the outage began keeps its place for the grace. A new caller fails within one
    /// round. A caller that waits for ever waits for the end of the outage, whenever it has begun.
    pub(super) fn no_quorum(
        &mut self,
        error: LockError,
        deadline: Option<Instant>,
    ) -> Result<Option<Pause>, LockError> {
        let votes = error.votes().cloned().unwrap_or_default();
        let begun = self.last_ask.begun;
        let is_endless = self.waiter.options.is_endless && is_transient(&votes);
        if is_endless && self.at.is_none() {
            self.move_to(0)?;
            // A drain or a shutdown that begins from now on notifies the waiter.
            self.check_drain()?;
            self.queues.home.check_open()?;
        }
        let since = self.with_queue(|queue| queue.record_outage(begun, &votes)).unwrap_or(begun);
        let waited_before = self.waiting_since.is_some_and(|waiting| waiting <= since);
        if !is_endless && (!waited_before || !is_transient(&votes)) {
            return Err(error);
        }
        self.ask.skip_lookup = false;
        let until = (!is_endless).then(|| {
            let until = since + self.queues.outage_grace;
            deadline.map_or(until, |deadline| deadline.min(until))
        });
        if !self.set_if_first(WaiterState::Refused) {
            return Ok(None);
        }
        if is_endless {
            self.begin_outage(&error, &votes);
        }
        Ok(Some(Pause::Outage(Box::new(error), until)))
    }

    /// Records, and logs once for each outage, that a waiter that waits for ever waits for the nodes.
    fn begin_outage(&mut self, error: &LockError, votes: &Votes) {
        if self.outage_since.is_none() {
            self.outage_since = Some(Instant::now());
            log_limited!(
                self.queues.log_limit, "waits in an outage", LogLimit::failed_node(votes), warn,
                lock = %self.key(), error = %error.diagnostics(),
                "a caller waits for ever for a lock, and goes on to wait until a quorum of nodes answers"
            );
        }
    }

    /// Records that the nodes have answered the waiter. Logs the end of an outage of which it has logged the begin.
    pub(super) fn end_outage(&mut self) {
        self.outage_backoff = None;
        if let Some(since) = self.outage_since.take() {
            log_limited!(
                self.queues.log_limit, "waited in an outage", "", info,
                lock = %self.key(), outage = ?since.elapsed(),
                "a quorum of nodes has answered a caller that waits for ever for a lock"
            );
        }
    }

    /// Returns an error if a drain ends the wait. A lock that was handed over before is taken.
    pub(super) fn check_drain(&self) -> Result<(), LockError> {
        let refused = self.queues.check_drain(|| self.waiter.options.caller);
        refused.or_else(|refused| match self.waiter.state() {
            WaiterState::HandedOver(_) => Ok(()),
            _ => Err(refused),
        })
    }

    /// Sets the state of the first waiter. Every other waiter waits in its place again. Returns whether the waiter is the
    /// first.
    fn set_if_first(&mut self, state: WaiterState) -> bool {
        let set = |queue: &mut KeyQueue| {
            if matches!(self.waiter.state(), WaiterState::HandedOver(_)) {
                return None;
            }
            let is_first = queue.is_first(&self.waiter);
            self.waiter.set(if is_first { state } else { WaiterState::Queued });
            Some(is_first)
        };
        let Some(is_first) = self.with_queue(set).flatten() else { return false };
        if !is_first {
            // As if it had just come.
            self.backoff = Backoff::new();
            self.patience = Patience::new(self.waiter.spec.mode());
            self.ask.skip_lookup = false;
        }
        is_first
    }

    /// Records that a quorum of nodes answers.
    fn record_quorum(&self) {
        self.with_queue(|queue| {
            // The waiter itself is awake.
            if queue.end_outage() && !queue.is_first(&self.waiter) {
                queue.wake_first();
            }
        });
    }

    /// Returns whether the subscription that was in effect at the last question is still that of the queue.
    fn is_subscribed(&self) -> bool {
        let Some((signal, _)) = &self.last_ask.signal else { return false };
        let mode = self.waiter.spec.mode();
        let is_present = |queue: &mut KeyQueue| {
            queue.signal(mode).is_some_and(|present| Arc::ptr_eq(present, signal))
        };
        self.with_queue(is_present).unwrap_or_default()
    }

    /// Returns the error of a caller whose waiting time was over before it could ask the nodes.
    fn timed_out(&self) -> LockError {
        let votes = |queue: &mut KeyQueue| Some(queue.outage()?.votes.clone());
        if let Some(votes) = self.with_queue(votes).flatten() {
            return LockError::Unavailable { key: self.key().clone(), votes };
        }
        let conflict = self.queues.local_conflict(&self.waiter.spec);
        conflict.unwrap_or_else(|| {
            let refusal = LockError::contended(self.key().clone(), None, Votes::default());
            refusal.with_holder_if_known(self.last_holder.clone())
        })
    }
}

/// Returns whether an acquisition failed because no quorum of nodes answered. This includes an acquisition
/// whose lease was over before the nodes could count as silent.
fn is_outage(error: &LockError) -> bool {
    match error {
        LockError::Unavailable { .. } => true,
        LockError::TimedOut { votes, .. } => {
            let answers =
                votes.iter().filter(|(_, vote)| !matches!(vote, None | Some(Vote::Failed(_))));
            answers.count() < quorum(votes.len())
        }
        _ => false,
    }
}

/// Returns whether several callers may have got votes, although nodes do not name the holders that they have.
fn may_hide_a_split(votes: &Votes) -> bool {
    let any = |is: fn(&Vote) -> bool| votes.iter().any(|(_, vote)| vote.is_some_and(is));
    any(|vote| *vote == Vote::Agreed) && any(|vote| matches!(vote, Vote::Held { holder: None, .. }))
}

/// Returns whether the nodes may answer soon. A missing permission, or a server that is configured twice,
/// does not change while a caller waits.
fn is_transient(votes: &Votes) -> bool {
    let lasting = votes.iter().filter(|(_, vote)| {
        matches!(vote, Some(Vote::Failed(NodeError::NotPermitted(_) | NodeError::SameServer(_))))
    });
    lasting.count() + quorum(votes.len()) <= votes.len()
}
