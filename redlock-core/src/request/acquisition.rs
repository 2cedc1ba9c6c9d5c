//! One acquisition: its steps, from the checked options to the guard.
//!
//! ```text
//! run ─┬─ join_in_scope       the scope of the caller holds the lock: join or refuse it
//!      ├─ try_once             without a waiting time: one attempt
//!      ├─ repeat               the votes are split: further attempts
//!      └─ try_until            with a waiting time
//!           └─ wait             Place::wait does what the machine of the waiter says
//!                ├─ ask_nodes   nothing is in the way
//!                ├─ take_over   a holder of this process has handed the lock over
//!                └─ Place::sleep    everything else
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::{consume_budget, yield_now};
use tokio::time::Instant;

use super::scope;
use crate::ballot::{Attempt, Standing};
use crate::context::Context;
use crate::error::{HoldError, LockError, Votes};
use crate::guard::LockGuard;
use crate::key::KeyError;
use crate::lease::Holding;
use crate::lock::{Keys, LockName, LockSpec, Mode, OwnerLabel};
use crate::lock_order::{OrderedLock, RequestPlace};
use crate::node::Ask;
use crate::options::{LockOptions, MinHold, ResolvedOptions, WaitTime, check_name};
use crate::telemetry::{AcquisitionTimer, Named, Trace};
use crate::waiting::{FairWait, Place, ReaderPlace, WaiterOptions, WaitingCaller};

/// One acquisition of a lock, with checked options. No public API.
pub struct Acquisition {
    pub(super) context: Arc<Context>,
    pub(super) spec: LockSpec,
    pub(super) options: ResolvedOptions,
    pub(super) name: Named,
    pub(super) place: RequestPlace,
    /// The span of the acquisition, once it has begun.
    pub(super) trace: Trace,
}

impl Acquisition {
    /// Checks the options and the key of a request.
    pub(super) fn check(
        context: &Context,
        name: &LockName,
        keys: Result<Keys, KeyError>,
        options: &LockOptions,
    ) -> Result<(LockSpec, ResolvedOptions), LockError> {
        let options = check_name(name).and_then(|()| options.resolve(&context.defaults));
        let allowed = options.and_then(|options| context.limits.allowed(options));
        let options = allowed.map_err(|error| match &keys {
            Ok(keys) => error.of_lock(keys.first()),
            Err(_) => error,
        })?;
        let spec = LockSpec::with_prefix(&context.prefix, &keys?, options.mode, options.dialect);
        let checked = context.limits.check_lock(&spec, options.fair, options.fenced);
        checked.map_err(|error| error.of_lock(spec.key()))?;
        Ok((spec, options))
    }

    /// Acquires the lock, or joins a lock of the same scope, as the options say: without a `wait_time`, by one attempt.
    ///
    /// # Errors
    ///
    /// Those of [`LockRequest::acquire`](crate::LockRequest::acquire), except that the key and the options are valid.
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::acquire`](crate::LockRequest::acquire).
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would store its arguments twice")]
    pub fn acquire(mut self) -> impl Future<Output = Result<LockGuard, LockError>> {
        async move {
            self.trace = Trace::of_acquisition(self.name.as_str());
            let Self { context, name, trace, .. } = &self;
            let mut timer = AcquisitionTimer::start(&context.home.counters, name, trace);
            let result = match self.options.min_hold {
                None => self.run().await,
                Some(min_hold) => self.run_and_keep(min_hold).await,
            };
            timer.set_outcome(result.as_ref().err());
            result
        }
    }

    /// Acquires the lock, or joins a lock of the same scope, and keeps it for the minimum hold time. Makes sure that its
    /// lease covers that time.
    async fn run_and_keep(&self, min_hold: MinHold) -> Result<LockGuard, LockError> {
        let clock = &self.context.ballot.clock;
        let since = clock.now();
        let guard = self.run().await?;
        let min_lease = match min_hold {
            MinHold::For(time) => time,
            MinHold::UntilExpiry => self.options.expire,
        };
        let is_covered = guard.held().attempt().lease().lasts_until(since.plus(min_lease));
        // Only a shared lock can have a shorter lease: it was acquired for another request. Boxed, because this is rare and
        // the future would enlarge the future of every acquisition.
        if !is_covered && let Err(error) = Box::pin(guard.extend(self.options.expire)).await {
            self.context.home.check_open()?;
            return Err(match error {
                HoldError::Lost(lost) => LockError::Lost(lost),
                HoldError::Unavailable { key, votes } => LockError::Unavailable { key, votes },
                HoldError::InvalidOption(error) => error.into(),
            });
        }
        guard.held().set_min_hold(min_hold, since);
        Ok(guard)
    }

    /// Acquires the lock, or joins a lock of the same scope without extending it.
    async fn run(&self) -> Result<LockGuard, LockError> {
        self.context.home.check_open()?;
        self.context.queues.check_drain(scope::caller)?;
        self.context.enter();
        if let Some(guard) = self.join_in_scope()? {
            return Ok(guard);
        }
        if self.options.wait_time.is_some() {
            self.record_order();
        }
        if let Some(guard) = self.join_readers()? {
            // A task that reads again and again would never leave its thread otherwise. It holds the lock meanwhile, so that
            // the tasks which it lets run join the lock, too.
            return match consume_budget().now_or_never() {
                Some(()) => Ok(guard),
                // Boxed, because the guard would enlarge the future of every acquisition.
                None => Box::pin(yield_with(guard)).await,
            };
        }
        // Two futures are boxed, because they are rare and would enlarge the future of every acquisition.
        let (result, begun) = match self.options.wait_time {
            None => {
                let begun = Instant::now();
                (self.try_once().await, Some(begun))
            }
            // The waiting time may be too short for the repetitions of a caller that does not wait.
            Some(wait_time) => (Box::pin(self.try_until(wait_time)).await, None),
        };
        match result {
            Err(refused)
                if Standing::of_refusal(&refused)
                    .is_some_and(|standing| standing.is_worth_repeating(None)) =>
            {
                let round_trip = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
                Box::pin(self.repeat(refused, round_trip)).await
            }
            result => result,
        }
    }

    /// Waits for the lock, and once more if a server is back at the end of the waiting time.
    async fn try_until(&self, wait_time: WaitTime) -> Result<LockGuard, LockError> {
        let deadline = match wait_time {
            // A deadline that the clock cannot represent is no deadline.
            WaitTime::UpTo(wait_time) => Instant::now().checked_add(wait_time),
            WaitTime::Forever => None,
        };
        match self.wait(deadline).await {
            // A server that is back is used at once.
            Err(LockError::Unavailable { votes, .. })
                if Box::pin(self.reconnect(&votes, deadline)).await =>
            {
                // Boxed, because the future would have both waits at once.
                Box::pin(self.wait(deadline)).await
            }
            result => result,
        }
    }

    /// Records that the caller may wait for the lock while its scope holds others.
    fn record_order(&self) {
        let Some(order) = &self.context.order else { return };
        let wanted = OrderedLock { name: self.name.as_str(), mode: self.spec.mode() };
        scope::for_each(&self.context.queues, |held| {
            let held = OrderedLock { name: held.name(), mode: held.attempt().spec().mode() };
            order.record(held, wanted, &self.place);
        });
    }

    /// Sets where the lock is requested, for front ends that know it late.
    #[must_use]
    pub fn with_place(mut self, place: RequestPlace) -> Self {
        self.place = place;
        self
    }

    /// Returns the error with which [`acquire`](Self::acquire) would fail now, without asking the nodes and without waiting:
    /// the manager drains or is closed, the caller's scope holds the lock, or, if the caller would not wait, this process holds it.
    pub fn refusal_at_once(&self) -> Option<LockError> {
        let refusal = self.look().err();
        if let Some(error) = &refusal {
            AcquisitionTimer::refuse(&self.context.home.counters, &self.name, error);
        }
        refusal
    }

    /// Resolves when a [drain](crate::LockManager::drain) refuses the request, with its error. For front ends that wait for
    /// their client before they acquire the lock.
    pub async fn refused_by_drain(&self) -> LockError {
        let Context { home, queues, .. } = &*self.context;
        home.drain.until(|| queues.check_drain(scope::caller).is_err()).await;
        self.refusal_at_once().unwrap_or(LockError::Draining)
    }

    fn look(&self) -> Result<(), LockError> {
        self.context.home.check_open()?;
        self.context.queues.check_drain(scope::caller)?;
        let may_wait = self.options.wait_time.is_some();
        if self.join_in_scope()?.is_some() || may_wait {
            return Ok(());
        }
        self.context.queues.local_conflict(&self.spec).map_or(Ok(()), Err)
    }

    /// Lets the nodes that were not connected try to connect. Returns whether the caller may ask them again.
    async fn reconnect(&self, votes: &Votes, deadline: Option<Instant>) -> bool {
        let left =
            deadline.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        let limit = left.min(self.context.connect_timeout);
        let Context { ballot, home, .. } = &*self.context;
        if limit.is_zero() {
            return false;
        }
        tokio::select! {
            biased;
            may_ask = ballot.reconnect(&self.spec, votes, limit) => may_ask,
            // The next look at the queue refuses the caller, unless it holds another lock.
            () = home.drain.begun() => true,
        }
    }

    /// Waits for the lock. `None` as deadline waits without a limit.
    ///
    /// The place is dropped after the attempts and the guard that this function makes, so the release of an abandoned attempt
    /// is sent before the next waiter is called.
    async fn wait(&self, deadline: Option<Instant>) -> Result<LockGuard, LockError> {
        let mut place = self.enter_line(deadline)?;
        if self.options.fair && !place.is_in_line() && self.context.ballot.has_quorum() {
            // The outage may be over, and an attempt would overtake the callers before it. Boxed, because the future would
            // enlarge the futures of requests that are not fair.
            let is_occupied = Box::pin(self.context.fair.is_occupied(&self.spec)).await;
            if !self.is_endless() {
                is_occupied?;
            }
            place.join_first()?;
        }
        place.wait(self).await
    }

    /// Returns whether the caller waits for ever, also through outages.
    fn is_endless(&self) -> bool {
        matches!(self.options.wait_time, Some(WaitTime::Forever))
    }

    /// Joins the line of this process.
    fn enter_line(&self, deadline: Option<Instant>) -> Result<Place<'_>, LockError> {
        let Self { context, spec, options, .. } = self;
        let fair = options.fair.then(|| FairWait::new(&context.fair, spec));
        let waiter = self.waiter_options(fair.as_ref());
        Place::enter(&context.queues, spec, waiter, deadline, fair)
    }

    fn waiter_options(&self, fair: Option<&FairWait>) -> WaiterOptions {
        let Self { options, name, .. } = self;
        WaiterOptions {
            expire: options.expire,
            accepts_hand_over: options.min_hold.is_none()
                && (!options.fenced || self.context.limits.can_confirm()),
            fenced: options.fenced,
            joins: options.joins(),
            is_endless: self.is_endless(),
            caller: scope::caller(),
            name: name.clone(),
            since: Instant::now(),
            fair: fair.map(|fair| Arc::clone(fair.queue())),
        }
    }

    /// Makes one attempt to acquire the lock. A lock that this process holds is refused without a round trip. A fair caller
    /// is also refused if another fair caller waits.
    pub(super) async fn try_once(&self) -> Result<LockGuard, LockError> {
        let Self { context, spec, .. } = self;
        // While a reader asks the nodes, other readers wait for its answer.
        let reader = self
            .options
            .joins()
            .map(|_| ReaderPlace::new(&context.queues, spec, self.waiter_options(None)));
        // Boxed, because the futures would enlarge those of requests that are no readers, and not fair.
        if let Some(reader) = &reader {
            if let Some(guard) = Box::pin(self.join_answer(reader)).await? {
                return Ok(guard);
            }
        } else if let Some(conflict) = context.queues.local_conflict(spec) {
            return Err(conflict);
        } else if self.options.fair && Box::pin(context.fair.is_occupied(spec)).await? {
            return Err(LockError::contended(spec.key().clone(), None, Votes::default()));
        }
        let mut ask = Ask::FIRST;
        match self.ask_nodes(&mut ask).await {
            // The holder may be another acquisition of the same scope, which ran concurrently in the same
            // task.
            Err(refused @ (LockError::Contended { .. } | LockError::Split { .. })) => {
                self.join_in_scope()?.ok_or(refused)
            }
            result => result,
        }
    }

    /// Joins the lock of another reader of this process, if one asks the nodes or has got it just now.
    async fn join_answer(&self, reader: &ReaderPlace<'_>) -> Result<Option<LockGuard>, LockError> {
        match reader.join_or_ask().await? {
            Some(held) => self.take_over(held).await,
            None => Ok(None),
        }
    }

    /// Asks the nodes. Asks them once more if it has met the first node that takes marks at the lock.
    async fn ask_nodes(&self, ask: &mut Ask) -> Result<LockGuard, LockError> {
        let _shutdown_waits = self.context.home.delay_shutdown();
        loop {
            self.context.home.check_open()?;
            let Context { ballot, owner, .. } = &*self.context;
            let attempt = Attempt::new(&self.spec, owner, self.options.fenced, *ask, &ballot.clock);
            let grant = match ballot.acquire(&attempt, self.options.expire).await {
                Ok(grant) => grant,
                Err(_) if ask.record_refusal(&attempt) => continue,
                Err(refused) => return Err(refused),
            };
            let guard = self.make_guard(&attempt, &grant)?;
            self.trace.record("granted", grant.granted);
            self.trace.record("nodes", ballot.nodes.len());
            if ballot.nodes.len() == 1 {
                // The grant has removed all marks. Of several nodes, a minority may have refused the lock.
                ask.mark = None;
            }
            return Ok(guard);
        }
    }

    /// Shares a lock that the current scope holds, if the request has the same keys, and is reentrant or shares the lock
    /// as its holder does; otherwise refuses it, because a caller never waits for a lock of its own scope. Returns `None`
    /// if the scope does not hold the lock, or is releasing it.
    fn join_in_scope(&self) -> Result<Option<LockGuard>, LockError> {
        let Some(held) = scope::find(&self.context.queues, &self.spec) else { return Ok(None) };
        let attempt = held.attempt();
        let has_same_keys = attempt.spec().keys() == self.spec.keys();
        loop {
            let mode = attempt.spec().mode();
            if !has_same_keys || !self.may_share(&held, mode) {
                let common = self.spec.common_key(attempt.spec()).unwrap_or_default();
                return Err(LockError::AlreadyHeld { key: self.spec.key_at(common).clone() });
            }
            let guard = LockGuard::join(&self.context, Arc::clone(&held));
            // A downgrade that did not see this guard has changed the mode before.
            if attempt.spec().mode() == mode {
                return Ok(guard);
            }
        }
    }

    fn may_share(&self, held: &Holding, mode: Mode) -> bool {
        match (mode, self.spec.mode()) {
            // Otherwise an exclusive caller that waits for the first would keep out the second.
            (Mode::SHARED, Mode::SHARED) => true,
            // A fenced request can join only a lock that has a number.
            (own, wanted) if own == wanted || own == Mode::Exclusive => {
                self.options.reentrant && (!self.options.fenced || held.token().is_some())
            }
            // A holder that shares the lock would wait for itself.
            _ => false,
        }
    }
}

impl WaitingCaller for Acquisition {
    type Lock = LockGuard;

    fn join(&self) -> Result<Option<LockGuard>, LockError> {
        self.join_in_scope()
    }

    async fn ask(&self, ask: &mut Ask) -> Result<LockGuard, LockError> {
        self.ask_nodes(ask).await
    }

    async fn take(&self, held: Arc<Holding>) -> Result<Option<LockGuard>, LockError> {
        self.take_over(held).await
    }

    fn waits(&self, holder: impl FnOnce() -> Option<OwnerLabel>) {
        if self.trace.is_wanted()
            && let Some(holder) = holder()
        {
            self.trace.record_text("holder", holder);
        }
    }
}

impl fmt::Debug for Acquisition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquisition").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// Lets other tasks of the thread run while this one has the lock.
async fn yield_with(guard: LockGuard) -> Result<LockGuard, LockError> {
    yield_now().await;
    Ok(guard)
}
