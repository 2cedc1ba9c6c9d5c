//! Waiting for a lock: in the queue of this process, and then for the nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::acquisition::Acquisition;
use super::scope;
use crate::error::{LockError, Vote};
use crate::guard::LockGuard;
use crate::lease::Held;
use crate::queue::{
    Backoff, FairPlace, OutageWait, WaitOutcome, Waiter, WaiterOptions, is_outage, poll_pause,
    wake_retry_delay,
};

impl Acquisition<'_> {
    /// Waits in the queue of this process. Then takes the lock over from its former holder, or asks the
    /// nodes for it. `None` as deadline waits without a limit.
    pub(super) async fn wait(&self, deadline: Option<Instant>) -> Result<LockGuard, LockError> {
        if !self.options.fair {
            return self.wait_in_queue(None, deadline).await;
        }
        let place = self.context.fair.join(&self.spec);
        self.wait_in_queue(Some(&place), deadline).await
    }

    async fn wait_in_queue(
        &self,
        place: Option<&FairPlace>,
        deadline: Option<Instant>,
    ) -> Result<LockGuard, LockError> {
        let options = WaiterOptions {
            expire: self.options.expire,
            accepts_hand_over: self.options.min_hold.is_none(),
            fenced: self.fenced,
            scope: scope::current(),
            fair: place.map(|place| Arc::clone(place.queue())),
        };
        let waiter = self.context.queues.join(&self.spec, self.key, options)?;
        if let Some(place) = place {
            Box::pin(place.enter()).await;
        }
        let mut outage_wait = OutageWait::new(&waiter);
        if waiter.arrived_in_outage() {
            // This caller asks the nodes at once and returns their failure, while the waiters before it
            // keep their places. Boxed, because this is rare and the future would enlarge the future of
            // every acquisition.
            match Box::pin(self.try_once()).await {
                Err(LockError::Contended { .. }) => {
                    outage_wait.record_refusal(&waiter);
                }
                result => return result,
            }
        }
        loop {
            let outcome = match deadline {
                Some(deadline) => timeout_at(deadline, waiter.wait()).await.ok(),
                None => Some(waiter.wait().await),
            };
            match outcome {
                Some(WaitOutcome::AskNodes) => {
                    return self
                        .ask_until_granted(&waiter, place, &mut outage_wait, deadline)
                        .await;
                }
                Some(WaitOutcome::HeldByScope(held)) => {
                    if let Some(guard) = self.share(held)? {
                        return Ok(guard);
                    }
                }
                Some(WaitOutcome::HandedOver(held)) => {
                    if let Some(guard) =
                        self.accept(held, &waiter, &mut outage_wait, deadline).await?
                    {
                        if let Some(place) = place {
                            place.take_first();
                        }
                        return Ok(guard);
                    }
                }
                None => return Err(self.timed_out(&waiter)),
            }
        }
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
                self.context.check_not_shut_down()?;
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
    pub(super) fn timed_out(&self, waiter: &Waiter) -> LockError {
        match waiter.outage_votes() {
            Some(votes) => LockError::Unavailable { key: self.key.clone(), votes },
            None => self.contended(self.context.queues.local_conflict_remaining(&self.spec)),
        }
    }

    /// Asks the nodes until they grant the lock, the waiting time is over, or the attempt fails for
    /// another reason.
    async fn ask_until_granted(
        &self,
        waiter: &Waiter,
        place: Option<&FairPlace>,
        outage_wait: &mut OutageWait,
        deadline: Option<Instant>,
    ) -> Result<LockGuard, LockError> {
        let node_timeout = self.context.ballot.node_timeout;
        let mut signal = waiter.release_signal();
        let mut backoff = Backoff::new();
        // A published release wakes one waiter per process, and only one of them gets the lock, perhaps
        // for a short time. After a wake-up, a refused waiter therefore skips the lookup of the TTL, to
        // save the server a round trip. Not with several nodes: their refusal may be a split vote, whose
        // end is not published.
        let one_node = self.context.ballot.nodes.len() == 1;
        let mut skip_ttl_lookup = false;
        loop {
            let begun = Instant::now();
            // Boxed, because the future would enlarge the futures of requests that are not fair.
            let turn = match place {
                Some(place) => Box::pin(self.await_turn(place, waiter, deadline)).await,
                None => Ok(None),
            };
            if let Some(signal) = &signal {
                signal.reset();
            }
            let refused = match turn {
                Ok(Some(guard)) => return Ok(guard),
                Ok(None) => match self.ask_nodes(skip_ttl_lookup).await {
                    Ok(guard) => {
                        if let Some(place) = place {
                            place.take_first();
                        }
                        return Ok(guard);
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
                skip_ttl_lookup = false;
                continue;
            }
            let LockError::Contended { remaining, votes, .. } = &refused else {
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
                return Ok(guard);
            }
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Err(refused);
            }
            if is_split && signal.is_some() {
                // The other callers got the remaining votes. All of them release their votes, and each
                // release wakes all waiters at once. A waiter that asked again at each wake-up would meet
                // the same callers again and again, so it pauses for a random time instead.
                sleep(backoff.pause().min(left)).await;
                continue;
            }
            if remaining.is_some() {
                backoff = Backoff::new();
            }
            skip_ttl_lookup = match (&signal, remaining) {
                // A release that was published before the subscription was missed: ask once more.
                (None, _) => {
                    signal = Some(waiter.subscribe(node_timeout.min(left)).await);
                    false
                }
                (Some(signal), Some(remaining)) => {
                    signal.notified(poll_pause(remaining).min(left)).await
                }
                (Some(signal), None) if skip_ttl_lookup => {
                    signal.notified(wake_retry_delay().min(left)).await
                }
                (Some(_), None) => {
                    sleep(backoff.pause().min(left)).await;
                    false
                }
            } && one_node;
        }
    }
}
