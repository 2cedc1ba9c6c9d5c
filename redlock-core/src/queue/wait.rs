//! What a waiter does next, and its pauses.
//!
//! `ARCHITECTURE.md` has a picture of the states of a waiter, and the table of their transitions.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::{AFTER_EXPIRY, Backoff, poll_pause, wake_retry_delay};
use super::fair::{FairPlace, FairPosition};
use super::key_queue::KeyQueue;
use super::patience::Patience;
use super::place::{LastAsk, Place};
use super::release_signal::ReleaseSignal;
use super::step::{Pause, Step, Wake};
use super::waiter::WaiterState;
use crate::error::{LockError, NodeError, Vote, Votes};
use crate::jitter::jitter;
use crate::lease::Held;
use crate::lock::Mode;
use crate::quorum::quorum;

/// A wait in one queue that was shorter than this did not wait for a holder.
const SHORT_WAIT: Duration = Duration::from_millis(8);

impl Place<'_> {
    /// Returns what the caller does next.
    ///
    /// # Errors
    ///
    /// Returns the reason why the caller gives up. A caller whose waiting time is over still asks the nodes once if nothing
    /// is in its way.
    pub(crate) fn next(&mut self, deadline: Option<Instant>) -> Result<Step, LockError> {
        let is_over = left(deadline).is_zero();
        let pause = loop {
            match self.waiter.state() {
                WaiterState::HandedOver(held) => {
                    self.waiter.set(WaiterState::Queued);
                    self.last_ask.begun = Instant::now();
                    return Ok(Step::Take(held));
                }
                // The attempt fails, because the manager is shut down.
                _ if self.queues.is_closed() => return Ok(Step::Ask),
                WaiterState::Queued => break Pause::Queue,
                WaiterState::Refused if self.pause.is_some() => {
                    return Ok(Step::Sleep(self.pause.take().unwrap_or(Pause::Queue)));
                }
                WaiterState::Called | WaiterState::Asking | WaiterState::Refused => {}
            }
            if let Some(key) = self.key_held_here() {
                self.move_to(key)?;
                continue;
            }
            if let Some(pause) = self.local_pause(is_over) {
                break pause;
            }
            match self.fair.as_ref().map(FairPlace::position) {
                None | Some(FairPosition::First(..)) => {
                    if self.start_to_ask() {
                        return Ok(Step::Ask);
                    }
                }
                Some(FairPosition::Unknown) => break Pause::Fair,
                Some(FairPosition::Behind(since)) => {
                    // The caller waits for a holder, as if the nodes had refused it the lock.
                    self.waiting_since.get_or_insert_with(Instant::now);
                    self.record_quorum(Some(since));
                    break Pause::Fair;
                }
                Some(FairPosition::NoConductor(votes)) => {
                    self.last_ask.begun = Instant::now();
                    let key = self.keys.first().clone();
                    self.no_quorum(LockError::Unavailable { key, votes }, deadline)?;
                }
            }
        };
        if is_over { Err(self.timed_out()) } else { Ok(Step::Sleep(pause)) }
    }

    /// Returns another key than that of the queue that this process holds.
    fn key_held_here(&self) -> Option<usize> {
        let several = self.waiter.spec.has_several_keys();
        if self.at.is_some() && !several {
            return None;
        }
        let mode = self.waiter.spec.mode();
        let by_key = self.queues.by_key.lock();
        let mut keys = self.waiter.spec.queue_keys().iter();
        let is_blocked = |queue| self.blocking(queue, mode).is_some();
        let key = keys.position(|key| by_key.get(key).is_some_and(is_blocked))?;
        (self.at != Some(key)).then_some(key)
    }

    /// Returns the holder of this process that keeps the waiter from asking the nodes.
    fn blocking<'q>(&self, queue: &'q KeyQueue, mode: Mode) -> Option<(&'q Arc<Held>, Duration)> {
        let (held, remaining) = queue.conflict(mode)?;
        // A writer behind the readers of its own process asks the nodes: it leaves its mark there, so that they admit no
        // further readers.
        let asks = mode == Mode::Exclusive && held.attempt().spec().mode().is_shared();
        let waits_until = self.behind_readers_until.filter(|until| *until > Instant::now());
        match waits_until {
            Some(until) if asks => {
                Some((held, remaining.min(until.duration_since(Instant::now()))))
            }
            None if asks => None,
            _ => Some((held, remaining)),
        }
    }

    /// Returns what this process has in the way of a waiter that was called.
    fn local_pause(&self, is_over: bool) -> Option<Pause> {
        let key = self.at?;
        let by_key = self.queues.by_key.lock();
        let queue = by_key.get(self.queue_key(key))?;
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
            return Some(Pause::Split(until - now));
        }
        // A lock of several keys was refused for this key before, so it is likely to be refused again.
        if self.moved.is_some() && queue.signal(mode).is_none() {
            return Some(Pause::Subscribe);
        }
        let rest = queue.fairness.yield_remaining().filter(|_| queue.holders().is_empty())?;
        Some(Pause::Split(rest))
    }

    /// Records that the waiter asks the nodes. Returns false if the queue has other plans for it meanwhile.
    fn start_to_ask(&mut self) -> bool {
        let by_key = self.queues.by_key.lock();
        if matches!(self.waiter.state(), WaiterState::Queued | WaiterState::HandedOver(_)) {
            return false;
        }
        self.waiter.set(WaiterState::Asking);
        let queue = self.at.and_then(|key| by_key.get(self.queue_key(key)));
        let signal = queue.and_then(|queue| queue.signal(self.waiter.spec.mode()));
        // Counted before the question: a release that is published meanwhile is not missed.
        let signal = signal.map(|signal| (Arc::clone(signal), signal.counts()));
        drop(by_key);
        self.last_ask = LastAsk { begun: Instant::now(), signal };
        true
    }

    /// Records that the lock was not acquired, and chooses the pause.
    ///
    /// # Errors
    ///
    /// Returns the error if the caller gives up.
    pub(crate) fn refused(
        &mut self,
        error: LockError,
        deadline: Option<Instant>,
    ) -> Result<(), LockError> {
        if is_outage(&error) {
            return self.no_quorum(error, deadline);
        }
        let now = Instant::now();
        let LockError::Contended { key, remaining, votes } = &error else {
            self.record_quorum(None);
            return Err(error);
        };
        self.waiting_since.get_or_insert(now);
        self.outage_backoff = None;
        self.record_quorum(None);
        if left(deadline).is_zero() {
            return Err(error);
        }
        let held_at = self.keys.index_of(key);
        let Some(at) = self.at else {
            self.moved = Some(now).filter(|_| self.waiter.spec.has_several_keys());
            self.move_to(held_at)?;
            self.record_quorum(None);
            return Ok(());
        };
        if votes.is_empty() {
            // Another caller of this process relies on the lock, which the nodes have forgotten. The release of this attempt
            // is published, so the waiter does not listen.
            let pause = poll_pause(remaining.unwrap_or_default());
            self.behind_readers_until = Some(now + pause);
            self.set_if_first(WaiterState::Called);
            return Ok(());
        }
        if !self.set_if_first(WaiterState::Refused) {
            return Ok(());
        }
        let is_split = votes.iter().any(|(_, vote)| matches!(vote, Some(Vote::Granted)));
        let subscribed = self.is_subscribed();
        if is_split && subscribed {
            // The other callers got the remaining votes. All of them release their votes, and each
            // release wakes all waiters at once. A waiter that asked again at each wake-up would meet
            // the same callers again and again, so it pauses for a random time instead.
            self.pause = Some(Pause::Split(self.patience.limit(self.backoff.pause())));
            return Ok(());
        }
        if held_at != at && self.waiter.spec.has_several_keys() {
            return self.go_on_to(held_at);
        }
        if remaining.is_some() {
            self.backoff = Backoff::new();
        }
        self.pause = Some(match *remaining {
            // A release that was published before the subscription was missed: ask once more.
            _ if !subscribed => Pause::Subscribe,
            Some(remaining) => Pause::Release(poll_pause(remaining)),
            None if self.ask.skip_lookup => Pause::Release(wake_retry_delay()),
            None => Pause::Split(self.backoff.pause()),
        });
        Ok(())
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
    /// Only a caller that waited before the outage began keeps its place. A new caller fails within one round.
    fn no_quorum(&mut self, error: LockError, deadline: Option<Instant>) -> Result<(), LockError> {
        let votes = error.votes().cloned().unwrap_or_default();
        let begun = self.last_ask.begun;
        let since = {
            let mut by_key = self.queues.by_key.lock();
            let queue = self.at.and_then(|key| by_key.get_mut(self.queue_key(key)));
            queue.map_or(begun, |queue| queue.record_outage(begun, &votes))
        };
        let waited_before = self.waiting_since.is_some_and(|waiting| waiting <= since);
        if !waited_before || !is_transient(&votes) {
            return Err(error);
        }
        self.ask.skip_lookup = false;
        if self.set_if_first(WaiterState::Refused) {
            let until = since + self.queues.outage_grace;
            let until = deadline.map_or(until, |deadline| deadline.min(until));
            self.pause = Some(Pause::Outage(Box::new(error), until));
        }
        Ok(())
    }

    /// Sets the state of the first waiter. Every other waiter waits in its place again. Returns whether the waiter is the
    /// first.
    fn set_if_first(&mut self, state: WaiterState) -> bool {
        let by_key = self.queues.by_key.lock();
        let queue = self.at.and_then(|key| by_key.get(self.queue_key(key)));
        let is_first = queue.is_some_and(|queue| queue.is_first(&self.waiter));
        if matches!(self.waiter.state(), WaiterState::HandedOver(_)) {
            return false;
        }
        self.waiter.set(if is_first { state } else { WaiterState::Queued });
        drop(by_key);
        if !is_first {
            self.backoff = Backoff::new();
            self.patience = Patience::new(self.waiter.spec.mode());
            self.ask.skip_lookup = false;
        }
        is_first
    }

    /// Records that a quorum of nodes answers, or that the conductor of the fair queue answered at this time.
    pub(crate) fn record_quorum(&self, conductor_answered: Option<Instant>) {
        let mut by_key = self.queues.by_key.lock();
        let queue = self.at.and_then(|key| by_key.get_mut(self.queue_key(key)));
        let Some(queue) = queue else { return };
        let is_over = |answered| queue.outage().is_some_and(|outage| outage.since < answered);
        // The waiter itself is awake.
        if conductor_answered.is_none_or(is_over)
            && queue.end_outage()
            && !queue.is_first(&self.waiter)
        {
            queue.wake_first();
        }
    }

    /// Returns whether the subscription that was in effect at the last question is still that of the queue.
    fn is_subscribed(&self) -> bool {
        let Some((signal, _)) = &self.last_ask.signal else { return false };
        let by_key = self.queues.by_key.lock();
        let queue = self.at.and_then(|key| by_key.get(self.queue_key(key)));
        let present = queue.and_then(|queue| queue.signal(self.waiter.spec.mode()));
        present.is_some_and(|present| Arc::ptr_eq(present, signal))
    }

    /// Returns the error of a caller whose waiting time was over before it could ask the nodes.
    fn timed_out(&self) -> LockError {
        let votes = {
            let by_key = self.queues.by_key.lock();
            let queue = self.at.and_then(|key| by_key.get(self.queue_key(key)));
            queue.and_then(|queue| queue.outage()).map(|outage| outage.votes.clone())
        };
        if let Some(votes) = votes {
            return LockError::Unavailable { key: self.key().clone(), votes };
        }
        let (key, remaining) = match self.queues.local_conflict(&self.waiter.spec) {
            Some(conflict) => (self.keys.at(conflict.key), Some(conflict.remaining)),
            None => (self.key(), None),
        };
        LockError::Contended { key: key.clone(), remaining, votes: Votes::default() }
    }

    /// Sleeps. The only place where a waiter sleeps: the event that is logged here says why, and what has ended the sleep.
    /// If the future is dropped, the caller gives up.
    ///
    /// # Errors
    ///
    /// Returns the error of a caller that gives up in an outage.
    pub(crate) async fn sleep(
        &mut self,
        pause: Pause,
        deadline: Option<Instant>,
    ) -> Result<(), LockError> {
        let left = left(deadline);
        let changed = self.waiter.changed.notified();
        let wake = match &pause {
            Pause::Queue => tokio::select! {
                biased;
                () = changed => Wake::Notified,
                () = sleep(left) => Wake::Timer,
            },
            Pause::Fair => {
                let ballot = &self.queues.ballot;
                let fair = async {
                    if let Some(fair) = &self.fair {
                        fair.changed().await;
                    }
                };
                tokio::select! {
                    biased;
                    () = changed => Wake::Notified,
                    () = fair => Wake::FairQueue,
                    () = ballot.home.idle(ballot.node_timeout) => Wake::HomeIsIdle,
                    () = sleep(left) => Wake::Timer,
                }
            }
            Pause::Holder(held, at_most) => tokio::select! {
                biased;
                () = changed => Wake::Notified,
                () = Arc::clone(held).lost() => Wake::HolderEnded,
                () = sleep(left.min(*at_most)) => Wake::Timer,
            },
            Pause::Release(at_most) => {
                let release = async {
                    match &self.last_ask.signal {
                        Some((signal, counts)) => signal.notified(counts, left.min(*at_most)).await,
                        None => false,
                    }
                };
                tokio::select! {
                    biased;
                    () = changed => Wake::Notified,
                    has_fired = release => if has_fired { Wake::Release } else { Wake::Timer },
                }
            }
            Pause::Split(time) => {
                drop(changed);
                let mut timer = pin!(sleep(left.min(*time)));
                loop {
                    tokio::select! {
                        biased;
                        () = &mut timer => break Wake::Timer,
                        // Only a hand-over ends this pause early.
                        () = self.waiter.changed.notified() => {
                            let is_over = matches!(self.waiter.state(), WaiterState::HandedOver(_));
                            if is_over || self.queues.is_closed() {
                                break Wake::Notified;
                            }
                        }
                    }
                }
            }
            Pause::Subscribe => tokio::select! {
                biased;
                () = changed => Wake::Notified,
                () = self.subscribe(left) => Wake::Subscribed,
            },
            Pause::Outage(_, until) => {
                // The pause comes first: a node may appear to be up for a moment after its connection has broken, and
                // a frozen node always appears to be up.
                let pause = self.outage_backoff.get_or_insert_with(Backoff::new).pause();
                let ballot = &self.queues.ballot;
                let back = async {
                    sleep(pause).await;
                    ballot.quorum_recovered().await;
                };
                tokio::select! {
                    biased;
                    () = sleep_until(*until) => Wake::Timer,
                    () = changed => Wake::Notified,
                    () = back => Wake::QuorumIsBack,
                }
            }
        };
        tracing::trace!(key = %self.key(), pause = ?pause, wake = ?wake, "a waiter wakes");
        self.woken(pause, wake, deadline)
    }

    /// Subscribes to the releases of the queue's key, and waits until a quorum of subscriptions is in effect.
    async fn subscribe(&self, left: Duration) {
        let ballot = &self.queues.ballot;
        let Some(key) = self.at else { return };
        let spec = self.waiter.spec.of_key(self.queue_key(key));
        let (signal, ready) = ReleaseSignal::subscribe(&ballot.nodes, &spec);
        let signal = Arc::new(signal);
        if let Some(queue) = self.queues.by_key.lock().get_mut(self.queue_key(key)) {
            queue.set_signal(Arc::clone(&signal));
        }
        signal.take_effect(ready, ballot.node_timeout.min(left)).await;
    }

    /// Records the end of a sleep. A waiter that the nodes have refused is called again.
    fn woken(
        &mut self,
        pause: Pause,
        wake: Wake,
        deadline: Option<Instant>,
    ) -> Result<(), LockError> {
        let has_passed = match &pause {
            Pause::Release(_) => wake == Wake::Release,
            Pause::Split(_) => {
                let signal = self.last_ask.signal.as_ref();
                signal.is_some_and(|(signal, counts)| signal.has_fired(counts))
            }
            // Before the subscription, a release may have passed unnoticed.
            Pause::Subscribe => true,
            Pause::Queue | Pause::Fair | Pause::Holder(..) | Pause::Outage(..) => false,
        };
        let ballot = &self.queues.ballot;
        self.patience.record(ballot, &self.waiter.spec, has_passed);
        // A published release wakes one waiter per process, and only one of them gets the lock, perhaps
        // for a short time. After a wake-up, a refused waiter therefore skips the lookup of the TTL, to
        // save the server a round trip. Not with several nodes: their refusal may be a split vote, whose
        // end is not published.
        self.ask.skip_lookup = wake == Wake::Release && ballot.nodes.len() == 1;
        match (pause, wake) {
            (Pause::Outage(error, _), Wake::Timer) => return Err(*error),
            (_, Wake::HomeIsIdle) => {
                let idle = Vote::Failed(NodeError::RuntimeIdle);
                let nodes = ballot.nodes.iter();
                let votes =
                    nodes.map(|node| (Arc::clone(node.name()), Some(idle.clone()))).collect();
                self.last_ask.begun = Instant::now();
                let error = LockError::Unavailable { key: self.key().clone(), votes };
                return self.no_quorum(error, deadline);
            }
            _ => {}
        }
        let _by_key = self.queues.by_key.lock();
        if matches!(self.waiter.state(), WaiterState::Refused) {
            self.waiter.set(WaiterState::Called);
        }
        Ok(())
    }
}

/// Returns whether an acquisition failed because no quorum of nodes answered. This includes an acquisition
/// whose lease was over before the nodes could count as silent.
pub(crate) fn is_outage(error: &LockError) -> bool {
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

/// Returns whether the nodes may answer soon. A missing permission, or a server that is configured twice,
/// does not change while a caller waits.
fn is_transient(votes: &Votes) -> bool {
    let lasting = votes.iter().filter(|(_, vote)| {
        matches!(vote, Some(Vote::Failed(NodeError::NotPermitted(_) | NodeError::SameServer(_))))
    });
    lasting.count() + quorum(votes.len()) <= votes.len()
}

/// Returns the time until the deadline. No deadline is an endless time.
fn left(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
}
