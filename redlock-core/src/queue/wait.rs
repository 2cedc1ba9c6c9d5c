//! The next step of a waiter, and its pauses.
//!
//! `ARCHITECTURE.md` has a picture of the states of a waiter, and the table of their transitions.

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
            _ if queues.is_closed() => return Look::Step(Step::Ask),
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
        match self.fair.as_ref().map(FairPlace::position) {
            None | Some(FairPosition::First(..)) => {}
            Some(FairPosition::Unknown) => return Look::Sleep(Pause::Fair),
            Some(FairPosition::Behind(since)) => {
                // The caller waits for a holder, as if the nodes had refused it the lock.
                self.waiting_since.get_or_insert_with(Instant::now);
                if let Some(queue) = queue {
                    end_outage_before(queue, since);
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
    fn blocking<'q>(&self, queue: &'q KeyQueue, mode: Mode) -> Option<(&'q Arc<Held>, Duration)> {
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
        error: LockError,
        deadline: Option<Instant>,
    ) -> Result<Option<Pause>, LockError> {
        if is_outage(&error) {
            return self.no_quorum(error, deadline);
        }
        let now = Instant::now();
        let LockError::Contended { key, remaining, votes } = &error else {
            self.record_quorum();
            return Err(error);
        };
        self.waiting_since.get_or_insert(now);
        self.outage_backoff = None;
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
        let is_split = votes.iter().any(|(_, vote)| matches!(vote, Some(Vote::Granted)));
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
        Ok(Some(match *remaining {
            // A release that was published before the subscription was missed: ask once more.
            _ if !subscribed => Pause::Subscribe,
            Some(remaining) => Pause::Release(poll_pause(remaining)),
            None if self.ask.skip_lookup => Pause::Release(wake_retry_delay()),
            None => Pause::Split(self.backoff.pause()),
        }))
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
    fn no_quorum(
        &mut self,
        error: LockError,
        deadline: Option<Instant>,
    ) -> Result<Option<Pause>, LockError> {
        let votes = error.votes().cloned().unwrap_or_default();
        let begun = self.last_ask.begun;
        let since = {
            let mut by_key = self.queues.lock(&self.waiter.spec);
            let queue = self.at.and_then(|key| by_key.get_mut(self.waiter.spec.key_at(key)));
            queue.map_or(begun, |queue| queue.record_outage(begun, &votes))
        };
        let waited_before = self.waiting_since.is_some_and(|waiting| waiting <= since);
        if !waited_before || !is_transient(&votes) {
            return Err(error);
        }
        self.ask.skip_lookup = false;
        let until = since + self.queues.outage_grace;
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let is_first = self.set_if_first(WaiterState::Refused);
        Ok(is_first.then(|| Pause::Outage(Box::new(error), until)))
    }

    /// Sets the state of the first waiter. Every other waiter waits in its place again. Returns whether the waiter is the
    /// first.
    fn set_if_first(&mut self, state: WaiterState) -> bool {
        let by_key = self.queues.lock(&self.waiter.spec);
        let queue = self.at.and_then(|key| by_key.get(self.waiter.spec.key_at(key)));
        let is_first = queue.is_some_and(|queue| queue.is_first(&self.waiter));
        if matches!(self.waiter.state(), WaiterState::HandedOver(_)) {
            return false;
        }
        self.waiter.set(if is_first { state } else { WaiterState::Queued });
        drop(by_key);
        if !is_first {
            // As if it had just come.
            self.backoff = Backoff::new();
            self.patience = Patience::new(self.waiter.spec.mode());
            self.ask.skip_lookup = false;
        }
        is_first
    }

    /// Records that a quorum of nodes answers.
    pub(crate) fn record_quorum(&self) {
        let mut by_key = self.queues.lock(&self.waiter.spec);
        let queue = self.at.and_then(|key| by_key.get_mut(self.waiter.spec.key_at(key)));
        // The waiter itself is awake.
        if let Some(queue) = queue
            && queue.end_outage()
            && !queue.is_first(&self.waiter)
        {
            queue.wake_first();
        }
    }

    /// Returns whether the subscription that was in effect at the last question is still that of the queue.
    fn is_subscribed(&self) -> bool {
        let Some((signal, _)) = &self.last_ask.signal else { return false };
        let by_key = self.queues.lock(&self.waiter.spec);
        let queue = self.at.and_then(|key| by_key.get(self.waiter.spec.key_at(key)));
        let present = queue.and_then(|queue| queue.signal(self.waiter.spec.mode()));
        present.is_some_and(|present| Arc::ptr_eq(present, signal))
    }

    /// Returns the error of a caller whose waiting time was over before it could ask the nodes.
    fn timed_out(&self) -> LockError {
        let votes = {
            let by_key = self.queues.lock(&self.waiter.spec);
            let queue = self.at.and_then(|key| by_key.get(self.waiter.spec.key_at(key)));
            queue.and_then(|queue| queue.outage()).map(|outage| outage.votes.clone())
        };
        if let Some(votes) = votes {
            return LockError::Unavailable { key: self.key().clone(), votes };
        }
        let (key, remaining) = match self.queues.local_conflict(&self.waiter.spec) {
            Some(conflict) => (self.waiter.spec.key_at(conflict.key), Some(conflict.remaining)),
            None => (self.key(), None),
        };
        LockError::Contended { key: key.clone(), remaining, votes: Votes::default() }
    }

    /// Sleeps, if there is a pause. If the future is dropped, the caller gives up.
    ///
    /// # Errors
    ///
    /// Returns the error of a caller that gives up in an outage.
    pub(crate) async fn sleep(
        &mut self,
        mut pause: Option<Pause>,
        deadline: Option<Instant>,
    ) -> Result<(), LockError> {
        while let Some(present) = pause {
            let wake = self.sleep_once(&present, deadline).await;
            tracing::trace!(key = %self.key(), pause = ?present, ?wake, "a waiter wakes");
            pause = self.woken(present, wake, deadline)?;
        }
        Ok(())
    }

    /// The only place where a waiter sleeps.
    async fn sleep_once(&mut self, pause: &Pause, deadline: Option<Instant>) -> Wake {
        let left = left(deadline);
        // No deadline needs no timer.
        let is_over = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let changed = self.waiter.changed.notified();
        match pause {
            Pause::Queue => tokio::select! {
                biased;
                () = changed => Wake::Notified,
                () = is_over => Wake::Timer,
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
                    () = is_over => Wake::Timer,
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
            Pause::Split(time) | Pause::Yield(time) => tokio::select! {
                biased;
                () = sleep(left.min(*time)) => Wake::Timer,
                () = self.ended() => Wake::Notified,
            },
            Pause::Subscribe => tokio::select! {
                biased;
                () = self.subscribe(left) => Wake::Subscribed,
                () = self.ended() => Wake::Notified,
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
        }
    }

    /// Resolves when a lock is handed over to the waiter, or at a shutdown.
    async fn ended(&self) {
        while !matches!(self.waiter.state(), WaiterState::HandedOver(_)) && !self.queues.is_closed()
        {
            self.waiter.changed.notified().await;
        }
    }

    /// Subscribes to the releases of the queue's key, and waits until a quorum of subscriptions is in effect.
    async fn subscribe(&self, left: Duration) {
        let ballot = &self.queues.ballot;
        let Some(key) = self.at else { return };
        let spec = self.waiter.spec.of_key(self.waiter.spec.key_at(key));
        let (signal, ready) = ReleaseSignal::subscribe(&ballot.nodes, &spec);
        let signal = Arc::new(signal);
        if let Some(queue) =
            self.queues.lock(&self.waiter.spec).get_mut(self.waiter.spec.key_at(key))
        {
            queue.set_signal(Arc::clone(&signal));
        }
        signal.take_effect(ready, ballot.node_timeout.min(left)).await;
    }

    /// Records the end of a sleep. Returns the next pause, if the waiter
    /// does not have to look at its queue before.
    fn woken(
        &mut self,
        pause: Pause,
        wake: Wake,
        deadline: Option<Instant>,
    ) -> Result<Option<Pause>, LockError> {
        let ballot = &self.queues.ballot;
        let has_passed = match &pause {
            Pause::Release(_) => wake == Wake::Release,
            Pause::Split(_) => {
                let signal = self.last_ask.signal.as_ref();
                signal.is_some_and(|(signal, counts)| signal.has_fired(counts))
            }
            // Before the subscription, a release may have passed unnoticed.
            Pause::Subscribe => true,
            Pause::Outage(..) | Pause::Fair => false,
            // The nodes were not asked.
            Pause::Queue | Pause::Holder(..) | Pause::Yield(_) => return Ok(None),
        };
        self.patience.record(ballot, &self.waiter.spec, has_passed);
        // A published release wakes one waiter per process, and only one of them gets the lock, perhaps
        // for a short time. After a wake-up, a refused waiter therefore skips the lookup of the TTL, to
        // save the server a round trip. Not with several nodes: their refusal may be a split vote, whose
        // end is not published.
        self.ask.skip_lookup = wake == Wake::Release && ballot.nodes.len() == 1;
        match (pause, wake) {
            // Another waiter may have been put before this one, and asks now.
            (Pause::Outage(error, _), Wake::Timer) if !self.waiter.is_queued() => {
                return Err(*error);
            }
            (_, Wake::HomeIsIdle) => {
                // The conductor may have answered since the last look.
                if let Some(FairPosition::Behind(since)) =
                    self.fair.as_ref().map(FairPlace::position)
                    && let Some(key) = self.at
                    && let Some(queue) =
                        self.queues.lock(&self.waiter.spec).get_mut(self.waiter.spec.key_at(key))
                {
                    end_outage_before(queue, since);
                }
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
        Ok(None)
    }
}

/// Ends an outage that began before the conductor answered. The waiter itself is awake, and the only one that could ask.
fn end_outage_before(queue: &mut KeyQueue, answered: Instant) {
    if queue.outage().is_some_and(|outage| outage.since < answered) {
        queue.end_outage();
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
