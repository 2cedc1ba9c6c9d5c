//! Waiting for a lock: in the queue of this process, and then for the nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::acquisition::Acquisition;
use super::ask_state::AskState;
use super::patience::Patience;
use super::scope;
use crate::error::{LockError, Vote};
use crate::guard::LockGuard;
use crate::lease::Held;
use crate::queue::{
    Backoff, FairPlace, OutageWait, WaitOutcome, Waiter, WaiterOptions, is_outage, poll_pause,
    wake_retry_delay,
};

/// The end of a wait in the queue of one key.
pub(super) enum QueueExit {
    /// The lock was acquired.
    Acquired(LockGuard),
    /// The key at this index is held. Only a lock of several keys can be refused for another key than that of
    /// the queue.
    HeldAt(usize),
    /// The caller waits in its place again: it is a reader that is not the first, or another caller of this process has the
    /// lock.
    Queued,
}

impl Acquisition<'_> {
    /// Waits in the queue of this process. Then takes the lock over from its former holder, or asks the
    /// nodes for it. `None` as deadline waits without a limit.
    pub(super) async fn wait(&self, deadline: Option<Instant>) -> Result<LockGuard, LockError> {
        if !self.options.fair {
            return self.wait_with(None, deadline).await;
        }
        let place = self.context.fair.join(&self.spec);
        self.wait_with(Some(&place), deadline).await
    }

    /// Waits, with the place in the fair queue if the caller is fair.
    async fn wait_with(
        &self,
        place: Option<&FairPlace>,
        deadline: Option<Instant>,
    ) -> Result<LockGuard, LockError> {
        let waiter = self.join(0, Instant::now(), place)?;
        if let Some(place) = place {
            Box::pin(place.enter()).await;
        }
        let mut outage_wait = OutageWait::new(&waiter);
        let mut state = AskState::of_waiter(self.context, &self.spec);
        if waiter.arrived_in_outage() {
            // Boxed, because this is rare and the future would enlarge the future of every acquisition.
            let arrival = Box::pin(self.arrive_in_outage(place, &waiter, &mut outage_wait));
            if let Some(guard) = arrival.await? {
                return Ok(guard);
            }
        }
        loop {
            let waiting =
                self.wait_in_queue(&waiter, 0, place, &mut outage_wait, &mut state, deadline);
            if let QueueExit::Acquired(guard) = waiting.await? {
                return Ok(guard);
            }
        }
    }

    /// Joins the queue of the key at this index. The caller has waited since `since`.
    pub(super) fn join(
        &self,
        key: usize,
        since: Instant,
        place: Option<&FairPlace>,
    ) -> Result<Waiter, LockError> {
        let options = WaiterOptions {
            expire: self.options.expire,
            accepts_hand_over: self.options.min_hold.is_none(),
            fenced: self.fenced,
            scope: scope::current(),
            since,
            fair: place.map(|place| Arc::clone(place.queue())),
        };
        self.context.queues.join(&self.spec, key, self.keys.at(key), options)
    }

    /// Waits in the queue of the key at index `key`, until the lock is acquired or refused for another key.
    pub(super) async fn wait_in_queue(
        &self,
        waiter: &Waiter,
        key: usize,
        place: Option<&FairPlace>,
        outage_wait: &mut OutageWait,
        state: &mut AskState<'_>,
        deadline: Option<Instant>,
    ) -> Result<QueueExit, LockError> {
        loop {
            let outcome = match deadline {
                Some(deadline) => timeout_at(deadline, waiter.wait()).await.ok(),
                None => Some(waiter.wait().await),
            };
            match outcome {
                Some(WaitOutcome::AskNodes) => break,
                Some(WaitOutcome::LeaveMark) => {
                    // Boxed, because the future would enlarge the future of every acquisition.
                    if let Some(guard) = Box::pin(self.leave_mark(state, deadline)).await {
                        took_turn(place);
                        return Ok(QueueExit::Acquired(guard));
                    }
                }
                Some(WaitOutcome::HeldByScope(held)) => {
                    if let Some(guard) = self.share(&held)? {
                        return Ok(QueueExit::Acquired(guard));
                    }
                }
                Some(WaitOutcome::HandedOver(held)) => {
                    if let Some(guard) = self.accept(held, waiter, outage_wait, deadline).await? {
                        took_turn(place);
                        return Ok(QueueExit::Acquired(guard));
                    }
                }
                None => return Err(self.timed_out(waiter, key)),
            }
        }
        self.ask_until_granted(waiter, key, place, outage_wait, state, deadline).await
    }

    /// Takes over a lock that was handed over to this caller. Returns `None` if the lock is lost: the waiter is
    /// then the first of the queue again.
    async fn accept(
        &self,
        held: Arc<Held>,
        waiter: &Waiter,
        outage_wait: &mut OutageWait,
        deadline: Option<Instant>,
    ) -> Result<Option<LockGuard>, LockError> {
        let begun = Instant::now();
        let unconfirmed = match self.take_over(held).await {
            Ok(Some(guard)) => {
                // If the manager was shut down meanwhile, the shutdown has released the lock.
                self.context.check_open()?;
                return Ok(Some(guard));
            }
            Ok(None) => None,
            Err(error) if is_outage(&error) => Some(error),
            Err(error) => return Err(error),
        };
        waiter.rejoin();
        if let Some(error) = unconfirmed {
            // Boxed, because this is rare and the future would enlarge the future of every acquisition.
            Box::pin(outage_wait.wait_through(waiter, begun, error, deadline)).await?;
        }
        Ok(None)
    }

    /// Returns the error of a caller whose waiting time was over before it was its turn to ask the nodes.
    pub(super) fn timed_out(&self, waiter: &Waiter, key: usize) -> LockError {
        if let Some(votes) = waiter.outage_votes() {
            return LockError::Unavailable { key: self.keys.at(key).clone(), votes };
        }
        match self.context.queues.local_conflict(&self.spec) {
            Some(conflict) => self.contended_locally(conflict),
            None => self.contended(key, None),
        }
    }

    /// Asks the nodes until they grant the lock, the waiting time is over, or the attempt fails for
    /// another reason. Returns early if another key than that of the queue, which is at index `key`, is held.
    async fn ask_until_granted(
        &self,
        waiter: &Waiter,
        key: usize,
        place: Option<&FairPlace>,
        outage_wait: &mut OutageWait,
        state: &mut AskState<'_>,
        deadline: Option<Instant>,
    ) -> Result<QueueExit, LockError> {
        let several_keys = self.spec.has_several_keys();
        let node_timeout = self.context.ballot.node_timeout;
        let mut signal = waiter.release_signal();
        if several_keys && signal.is_none() {
            // The lock was refused for this key before, so it is likely to be refused again.
            signal = Some(waiter.subscribe(node_timeout.min(left(deadline))).await);
        }
        let mut backoff = Backoff::new();
        // A published release wakes one waiter per process, and only one of them gets the lock, perhaps
        // for a short time. After a wake-up, a refused waiter therefore skips the lookup of the TTL, to
        // save the server a round trip. Not with several nodes: their refusal may be a split vote, whose
        // end is not published.
        let one_node = self.context.ballot.nodes.len() == 1;
        state.skip_ttl_lookup = false;
        let mut patience = Patience::new(self.spec.mode());
        loop {
            if several_keys && let Some(conflict) = self.context.queues.local_conflict(&self.spec) {
                return Ok(QueueExit::HeldAt(conflict.key));
            }
            // Boxed, because the future would enlarge the futures of requests that are not fair.
            let turn = match place {
                Some(place) => {
                    Box::pin(self.await_turn(place, waiter, outage_wait, deadline)).await
                }
                None => Ok(None),
            };
            let begun = Instant::now();
            let published = signal.as_ref().map(|signal| signal.counts());
            let refused = match turn {
                Ok(Some(guard)) => return Ok(QueueExit::Acquired(guard)),
                Ok(None) => match self.ask_nodes(state).await {
                    Ok(guard) => {
                        took_turn(place);
                        return Ok(QueueExit::Acquired(guard));
                    }
                    Err(refused) => refused,
                },
                Err(refused) if is_outage(&refused) => refused,
                Err(error) => return Err(error),
            };
            if is_outage(&refused) {
                // Boxed, because this is rare and the future would enlarge the future of every
                // acquisition.
                Box::pin(outage_wait.wait_through(waiter, begun, refused, deadline)).await?;
                if !waiter.goes_on_asking(false) {
                    return Ok(QueueExit::Queued);
                }
                state.skip_ttl_lookup = false;
                continue;
            }
            let LockError::Contended { key: held_key, remaining, votes } = &refused else {
                waiter.record_quorum();
                return Err(refused);
            };
            let remaining = *remaining;
            let is_split = votes.iter().any(|(_, vote)| matches!(vote, Some(Vote::Granted)));
            if outage_wait.record_refusal(waiter) {
                // An outage has ended. Its broken connections may have ended the subscriptions:
                // subscribe again.
                signal = None;
            }
            if let Some(guard) = self.share_in_scope()? {
                return Ok(QueueExit::Acquired(guard));
            }
            let left = left(deadline);
            if left.is_zero() {
                return Err(refused);
            }
            // Without votes, another caller of this process relies on the lock, which the nodes have forgotten.
            if !waiter.goes_on_asking(votes.is_empty()) {
                return Ok(QueueExit::Queued);
            }
            if let (Some(signal), Some(published), true) = (&signal, &published, is_split) {
                // The other callers got the remaining votes. All of them release their votes, and each
                // release wakes all waiters at once. A waiter that asked again at each wake-up would meet
                // the same callers again and again, so it pauses for a random time instead.
                sleep(patience.limit(backoff.pause()).min(left)).await;
                patience.record(waiter, signal.has_fired(published));
                continue;
            }
            if several_keys {
                let held_at = self.keys.index_of(held_key);
                if held_at != key {
                    return Ok(QueueExit::HeldAt(held_at));
                }
            }
            if remaining.is_some() {
                backoff = Backoff::new();
            }
            let is_first = signal.is_none();
            let was_notified = match (signal.as_ref().zip(published.as_ref()), remaining) {
                // A release that was published before the subscription was missed: ask once more.
                (None, _) => {
                    signal = Some(waiter.subscribe(node_timeout.min(left)).await);
                    false
                }
                (Some((signal, published)), Some(remaining)) => {
                    signal.notified(published, poll_pause(remaining).min(left)).await
                }
                (Some((signal, published)), None) if state.skip_ttl_lookup => {
                    signal.notified(published, wake_retry_delay().min(left)).await
                }
                (Some(_), None) => {
                    sleep(backoff.pause().min(left)).await;
                    false
                }
            };
            // Before the subscription, a release may have passed unnoticed.
            patience.record(waiter, was_notified || is_first);
            state.skip_ttl_lookup = was_notified && one_node;
        }
    }
}

/// Records that a caller has the lock, so that its process leaves the fair queue, if it waited in one.
pub(super) fn took_turn(place: Option<&FairPlace>) {
    if let Some(place) = place {
        place.take_first();
    }
}

/// Returns the time until the deadline. No deadline is an endless time.
pub(super) fn left(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
}
