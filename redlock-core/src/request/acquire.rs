//! The steps of an acquisition: share a lock of the scope, queue in this process, ask the nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{LockRequest, scope};
use crate::ballot::{Attempt, Grant, MinHold, Refusal};
use crate::error::{ExtendError, LockError, Vote, Votes};
use crate::guard::LockGuard;
use crate::key::LockKey;
use crate::lease::Held;
use crate::lock::{LockName, LockSpec, Mode};
use crate::options::{ResolvedOptions, WaitTime};
use crate::queue::{
    Backoff, OutageWait, WaitOutcome, Waiter, WaiterOptions, is_outage, poll_pause,
    wake_retry_delay,
};

impl LockRequest {
    /// Acquires the lock, or shares a lock of the same scope, with the request's options.
    pub(super) async fn acquire_or_share(&self) -> Result<LockGuard, LockError> {
        let options = &self.options.resolve(&self.context)?;
        if self.fenced {
            self.context.check_fenced()?;
        }
        let Some(min_hold) = options.min_hold else { return self.acquire_guard(options).await };
        let clock = &self.context.ballot.clock;
        let mut since = clock.now();
        let guard = self.acquire_guard(options).await?;
        let min_lease = match min_hold {
            MinHold::For(time) => time,
            MinHold::UntilExpiry => options.expire,
        };
        if !guard.held().is_kept_until(since.after(min_lease)) {
            // Only a shared lock can have a shorter lease: it was acquired for another request. Boxed,
            // because this is rare and the future would enlarge the future of every acquisition.
            since = clock.now();
            Box::pin(self.extend_shared(&guard, min_lease, options.expire)).await?;
        }
        guard.held().set_min_hold(min_hold, since);
        Ok(guard)
    }

    /// Extends a shared lock, which was acquired for another request, if its lease is shorter than
    /// `min_lease`.
    async fn extend_shared(
        &self,
        guard: &LockGuard,
        min_lease: Duration,
        expire: Duration,
    ) -> Result<(), LockError> {
        if guard.remaining() < min_lease
            && let Err(error) = guard.extend(expire).await
        {
            self.context.check_not_shut_down()?;
            return Err(match error {
                ExtendError::Lost { key, votes } => {
                    LockError::Contended { key, remaining: None, votes }
                }
                ExtendError::Unavailable { key, votes } => LockError::Unavailable { key, votes },
                ExtendError::InvalidOption(error) => error.into(),
            });
        }
        Ok(())
    }

    /// Acquires the lock, or shares a lock of the same scope without extending it.
    async fn acquire_guard(&self, options: &ResolvedOptions) -> Result<LockGuard, LockError> {
        let key = self.key.clone()?;
        let deadline = match options.wait_time {
            None => return self.try_once(&key, options).await,
            // A deadline that the clock cannot represent is no deadline.
            Some(WaitTime::UpTo(wait_time)) => Instant::now().checked_add(wait_time),
            Some(WaitTime::Forever) => None,
        };
        let context = &self.context;
        context.check_not_shut_down()?;
        let spec = Arc::new(self.spec(&key, options));
        if let Some(guard) = self.share_in_scope(&key, &spec, options)? {
            return Ok(guard);
        }
        let waiter_options = WaiterOptions {
            expire: options.expire,
            accepts_hand_over: options.min_hold.is_none(),
            fenced: self.fenced,
            scope: scope::current(),
        };
        let waiter = context.queues.join(&spec, &key, waiter_options)?;
        let mut outage_wait = OutageWait::new(&waiter);
        if waiter.arrived_in_outage() {
            // This caller came during an outage: it asks the nodes at once and returns their failure,
            // while the waiters before it keep their places. Boxed, because this is rare and the future
            // would enlarge the future of every acquisition.
            match Box::pin(self.try_once(&key, options)).await {
                Err(LockError::Contended { .. }) => {
                    outage_wait.record_refusal(&waiter);
                }
                result => return result,
            }
        }
        loop {
            let outcome = match deadline {
                Some(deadline) => tokio::time::timeout_at(deadline, waiter.wait()).await,
                None => Ok(waiter.wait().await),
            };
            match outcome {
                Ok(WaitOutcome::HandedOver(held)) => {
                    let begun = Instant::now();
                    let unconfirmed = match self.take_over(held, options).await {
                        Ok(Some(guard)) => {
                            // If the manager was shut down meanwhile, the shutdown has released the
                            // lock.
                            context.check_not_shut_down()?;
                            return Ok(guard);
                        }
                        Ok(None) => None,
                        Err(error) if is_outage(&error) => Some(error),
                        Err(error) => return Err(error),
                    };
                    waiter.rejoin();
                    if let Some(error) = unconfirmed {
                        Box::pin(outage_wait.wait_through(&waiter, begun, error, deadline)).await?;
                    }
                }
                Ok(WaitOutcome::HeldByScope(held)) => {
                    if let Some(guard) = self.share(&key, held, options)? {
                        return Ok(guard);
                    }
                }
                Ok(WaitOutcome::AskNodes) => {
                    return self
                        .ask_until_granted(&key, options, &waiter, &mut outage_wait, deadline)
                        .await;
                }
                Err(_) => {
                    if let Some(votes) = waiter.outage_votes() {
                        return Err(LockError::Unavailable { key, votes });
                    }
                    let remaining = context.queues.held_for(waiter.spec());
                    return Err(LockError::Contended { key, remaining, votes: Votes::default() });
                }
            }
        }
    }

    /// Asks the nodes until they grant the lock, the waiting time is over, or the attempt fails for
    /// another reason.
    async fn ask_until_granted(
        &self,
        key: &LockKey,
        options: &ResolvedOptions,
        waiter: &Waiter,
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
            if let Some(signal) = &signal {
                signal.reset();
            }
            let begun = Instant::now();
            let refused = match self.ask_nodes(key, waiter.spec(), options, skip_ttl_lookup).await {
                Ok(guard) => return Ok(guard),
                Err(refused) => refused,
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
            let split = votes.iter().any(|(_, vote)| matches!(vote, Some(Vote::Granted)));
            if outage_wait.record_refusal(waiter) {
                // An outage has ended. Its broken connections may have ended the subscriptions:
                // subscribe again.
                signal = None;
            }
            if let Some(guard) = self.share_in_scope(key, waiter.spec(), options)? {
                return Ok(guard);
            }
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Err(refused);
            }
            if split && signal.is_some() {
                // A split vote: the other callers got the remaining votes. All of them release their
                // votes, and each release wakes all waiters at once. A waiter that asked again at each
                // wake-up would meet the same callers again and again, so it pauses for a random time
                // instead.
                sleep(backoff.pause().min(left)).await;
                continue;
            }
            if remaining.is_some() {
                backoff = Backoff::new();
            }
            skip_ttl_lookup = match (&signal, remaining) {
                // A release that was published before the subscription was missed: ask once more.
                (None, _) => {
                    signal = Some(waiter.listen(node_timeout.min(left)).await);
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

    fn spec(&self, key: &LockKey, options: &ResolvedOptions) -> LockSpec {
        let name = LockName::new(&self.context.prefix, key);
        LockSpec::new(name, Mode::Exclusive, options.dialect)
    }

    /// Makes one attempt to acquire the lock. A lock that this process holds is refused without a round
    /// trip.
    async fn try_once(
        &self,
        key: &LockKey,
        options: &ResolvedOptions,
    ) -> Result<LockGuard, LockError> {
        self.context.check_not_shut_down()?;
        let spec = self.spec(key, options);
        if let Some(guard) = self.share_in_scope(key, &spec, options)? {
            return Ok(guard);
        }
        if let Some(remaining) = self.context.queues.held_for(&spec) {
            let (key, remaining) = (key.clone(), Some(remaining));
            return Err(LockError::Contended { key, remaining, votes: Votes::default() });
        }
        let spec = Arc::new(spec);
        match self.ask_nodes(key, &spec, options, false).await {
            // The holder may be another acquisition of the same scope, which ran concurrently in the
            // same task.
            Err(refused @ LockError::Contended { .. }) => {
                self.share_in_scope(key, &spec, options)?.ok_or(refused)
            }
            result => result,
        }
    }

    /// Shares or refuses a lock that the current scope holds. Returns `None` if the scope does not hold
    /// the lock. A caller never waits for a lock of its own scope.
    fn share_in_scope(
        &self,
        key: &LockKey,
        spec: &LockSpec,
        options: &ResolvedOptions,
    ) -> Result<Option<LockGuard>, LockError> {
        match scope::find(&self.context.queues, spec) {
            Some(held) => self.share(key, held, options),
            None => Ok(None),
        }
    }

    /// Shares a lock that the current scope holds, if the request is reentrant. Returns `None` if the
    /// lock is being released.
    fn share(
        &self,
        key: &LockKey,
        held: Arc<Held>,
        options: &ResolvedOptions,
    ) -> Result<Option<LockGuard>, LockError> {
        // A fenced request can share only a lock that has a number.
        if options.reentrant && (!self.fenced || held.token().is_some()) {
            Ok(LockGuard::share(&self.context, held))
        } else {
            Err(LockError::AlreadyHeld { key: key.clone() })
        }
    }

    /// Asks the nodes once. With `skip_ttl_lookup`, a refusal does not report how long the other
    /// holder's lease lasts. Asks them again if the connections moved to another runtime meanwhile.
    async fn ask_nodes(
        &self,
        key: &LockKey,
        spec: &Arc<LockSpec>,
        options: &ResolvedOptions,
        skip_ttl_lookup: bool,
    ) -> Result<LockGuard, LockError> {
        let context = &self.context;
        let _shutdown_waits = context.cleanup_tasks.delay_shutdown();
        loop {
            let moves = context.wait_after_move().await;
            let result = self.ask_nodes_once(key, spec, options, skip_ttl_lookup).await;
            let is_unavailable = matches!(result, Err(LockError::Unavailable { .. }));
            if !is_unavailable || context.runtimes.moves() == moves {
                return result;
            }
        }
    }

    async fn ask_nodes_once(
        &self,
        key: &LockKey,
        spec: &Arc<LockSpec>,
        options: &ResolvedOptions,
        skip_ttl_lookup: bool,
    ) -> Result<LockGuard, LockError> {
        self.context.check_not_shut_down()?;
        let attempt = self.new_attempt(key, spec, skip_ttl_lookup);
        match self.context.ballot.acquire(&attempt, options.expire).await {
            Ok(grant) => self.make_guard(&attempt, &grant, options),
            Err(refusal) => Err(lock_error(refusal, key.clone(), options.expire)),
        }
    }

    /// Makes the state of a new attempt. A function of its own, so that it does not enlarge the caller's
    /// future.
    fn new_attempt(
        &self,
        key: &LockKey,
        spec: &Arc<LockSpec>,
        skip_ttl_lookup: bool,
    ) -> Arc<Attempt> {
        let mut attempt = Attempt::new(spec, key.clone());
        if self.fenced {
            attempt = attempt.fenced();
        }
        if skip_ttl_lookup {
            attempt = attempt.without_ttl_lookup();
        }
        Arc::new(attempt)
    }

    fn make_guard(
        &self,
        attempt: &Arc<Attempt>,
        grant: &Grant,
        options: &ResolvedOptions,
    ) -> Result<LockGuard, LockError> {
        let context = &self.context;
        let clock = Arc::clone(&context.ballot.clock);
        let held =
            Held::new(Arc::clone(attempt), clock, grant.since, grant.decided, options.expire);
        let held = Arc::new(held.with_log_limit(&context.log_limit));
        if let Some(token) = grant.token {
            held.set_token(token);
        }
        if let Some(min_hold) = options.min_hold {
            held.set_min_hold(min_hold, grant.since);
        }
        context.queues.add_holder(&held, scope::current());
        scope::record(&context.queues, &held);
        let guard = LockGuard::new(Arc::clone(context), held, options.renewal());
        // If the manager was shut down meanwhile, the shutdown did not see this guard. The guard
        // releases the lock when it is dropped: at once, even if the lock was to stay on the nodes (an
        // abandoned attempt leaves nothing behind).
        context.check_not_shut_down().inspect_err(|_| attempt.cancel_min_hold())?;
        Ok(guard)
    }
}

pub(super) fn lock_error(refusal: Refusal, key: LockKey, expire: Duration) -> LockError {
    match refusal {
        Refusal::Contended { remaining, votes } => LockError::Contended { key, remaining, votes },
        Refusal::Unavailable(votes) => LockError::Unavailable { key, votes },
        Refusal::TimedOut { elapsed, votes } => LockError::TimedOut { key, elapsed, expire, votes },
        Refusal::Foreign(votes) => LockError::ForeignKey { key, votes },
    }
}
