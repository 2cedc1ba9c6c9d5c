//! The options of one acquisition.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::ballot::{Grant, Refusal, validity};
use crate::error::{InvalidOption, LockError, Votes};
use crate::fenced::FencedRequest;
use crate::guard::LockGuard;
use crate::key::{KeyError, LockKey};
use crate::lease::{Held, Renewal, State};
use crate::manager::Shared;
use crate::node::{Claim, Dialect, LockName};
use crate::queue::{Backoff, Place, Turn, Wanted, poll_pause};
use crate::scope;
use crate::telemetry::Acquisition;

/// One acquisition of a lock: made by [`LockManager::lock`](crate::LockManager::lock), completed by
/// options, ended by [`try_acquire`](Self::try_acquire) or [`acquire`](Self::acquire).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlock_core::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = LockManager::in_memory();
/// let guard = locks
///     .lock("order:42")
///     .expire(Duration::from_secs(5))
///     .wait_time(Duration::from_millis(500))
///     .acquire()
///     .await?;
/// // ... what must not happen twice at the same time ...
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a request does nothing until `acquire` or `try_acquire` is awaited"]
pub struct LockRequest {
    shared: Arc<Shared>,
    key: Result<LockKey, KeyError>,
    dialect: Dialect,
    expire: Option<Duration>,
    renew: bool,
    max_hold: Option<Duration>,
    hold_at_least: Option<Duration>,
    reentrant: bool,
    fenced: bool,
    wait: Wait,
}

/// How long an acquisition waits.
#[derive(Debug, Clone, Copy)]
enum Wait {
    Not,
    For(Duration),
    Forever,
}

impl LockRequest {
    pub(crate) fn new(shared: Arc<Shared>, key: Result<LockKey, KeyError>) -> Self {
        Self {
            dialect: shared.dialect,
            shared,
            key,
            expire: None,
            renew: false,
            max_hold: None,
            hold_at_least: None,
            reentrant: false,
            fenced: false,
            wait: Wait::Not,
        }
    }

    /// Sets the lease: how long the lock is held at most, unless it is extended or renewed. It
    /// frees itself afterwards, so that a crashed holder blocks nobody for ever.
    ///
    /// From 10 ms to 7 days; the servers count in whole milliseconds, a fraction is rounded up. A
    /// lease that is set here is not renewed unless [`renew`](Self::renew) is called. Defaults to
    /// the manager's [`expire`](crate::LockManagerBuilder::expire), 30 s, renewed.
    pub fn expire(mut self, expire: Duration) -> Self {
        self.expire = Some(expire);
        self
    }

    /// Renews the lease while the guard lives: every third of it, it is extended to its full length
    /// again. Renewal ends with the guard, and a failure never goes unnoticed, see
    /// [`LockGuard::lost`].
    ///
    /// Defaults to no renewal where [`expire`](Self::expire) is set, and to renewal otherwise.
    pub fn renew(mut self) -> Self {
        self.renew = true;
        self
    }

    /// Bounds the renewal: after this time since the acquisition the lease is not extended any more
    /// and runs out, so that work that hangs does not hold its lock for ever. An error where the lease
    /// is not renewed. Defaults to no bound.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Keeps the lock on the nodes for at least this time since the acquisition, even if it is
    /// released before: for work that must not be repeated sooner, on whichever machine and however
    /// its clock runs. A crashed holder's lock still runs out after its lease. Not longer than the
    /// lease. Defaults to none.
    pub fn hold_at_least(mut self, hold_at_least: Duration) -> Self {
        self.hold_at_least = Some(hold_at_least);
        self
    }

    /// Shares the lock if the same [scope](crate::scope) holds it already, instead of failing with
    /// [`LockError::AlreadyHeld`]. The lock is then released with the last of its guards; nothing is
    /// sent, and the lease stays what it was. Defaults to not sharing.
    pub fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// Sets how the lock is written down on the nodes, so that it is shared with services in other
    /// languages. Defaults to the manager's [`dialect`](crate::LockManagerBuilder::dialect).
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Sets the longest time that [`acquire`](Self::acquire) waits while another holds the lock.
    /// Defaults to none: one attempt.
    pub fn wait_time(mut self, wait_time: Duration) -> Self {
        self.wait = Wait::For(wait_time);
        self
    }

    /// Makes [`acquire`](Self::acquire) wait for as long as it takes. Mind that its caller may have
    /// lost its patience, or its client, long before.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Numbers the holders of the lock, so that the resource can refuse one that comes late: the guard
    /// has a [`FencingToken`](crate::FencingToken), which says what it promises. Call it last, the
    /// other options come before.
    ///
    /// On several nodes it costs one more round trip. The servers' users need the rights to `TIME`,
    /// and to `GET` and `SET` the key `redlock:fencing` behind the manager's prefix.
    pub fn fenced(mut self) -> FencedRequest {
        self.fenced = true;
        FencedRequest::new(self)
    }

    /// Makes one attempt to acquire the lock, whatever [`wait_time`](Self::wait_time) says.
    ///
    /// # Errors
    ///
    /// Every variant of [`LockError`] but [`Lost`](LockError::Lost). In each case the lock is not held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point gives back whatever it acquired, in the background.
    pub async fn try_acquire(mut self) -> Result<LockGuard, LockError> {
        self.wait = Wait::Not;
        self.acquire().await
    }

    /// Acquires the lock, waiting up to [`wait_time`](Self::wait_time) while another holds it.
    ///
    /// Waits for another holder only: where no quorum of nodes can be had it returns at once, so
    /// that callers learn of it. The nodes' answers to the last question are waited for, which may
    /// take up to the manager's `node_timeout` longer, and twice that for a
    /// [fenced](Self::fenced) lock.
    ///
    /// # Errors
    ///
    /// Every variant of [`LockError`] but [`Lost`](LockError::Lost). In each case the lock is not held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point gives back whatever it acquired, in the background, and
    /// ends the waiting.
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        let acquisition = Acquisition::begin();
        let result = self.obtain().await;
        acquisition.end(&result);
        result
    }

    async fn obtain(&self) -> Result<LockGuard, LockError> {
        let terms = self.terms()?;
        let key = self.key.clone()?;
        let deadline = match self.wait {
            Wait::Not => return self.attempt(&key, terms).await,
            // A deadline past the end of the clock is none.
            Wait::For(wait_time) => Instant::now().checked_add(wait_time),
            Wait::Forever => None,
        };
        let shared = &self.shared;
        shared.check_open()?;
        let name = self.name(&key);
        if let Some(guard) = self.re_enter(&key, &name)? {
            return Ok(guard);
        }
        let (expire, takes_over) = (terms.expire, terms.hold_at_least.is_none());
        let wanted = Wanted { expire, takes_over, fenced: self.fenced, scope: scope::current() };
        let place = shared.queues.join(name, &key, wanted)?;
        loop {
            let turn = match deadline {
                Some(deadline) => tokio::time::timeout_at(deadline, place.turn()).await,
                None => Ok(place.turn().await),
            };
            match turn {
                Ok(Turn::Handed(held)) => {
                    if let Some(guard) = self.take_over(held, terms).await? {
                        // A shutdown in between has released it already.
                        shared.check_open()?;
                        return Ok(guard);
                    }
                    place.rejoin();
                }
                Ok(Turn::Own(held)) => {
                    if let Some(guard) = self.share(&key, held)? {
                        return Ok(guard);
                    }
                }
                Ok(Turn::Ask) => return self.ask_until(&key, terms, &place, deadline).await,
                Err(_) => {
                    let remaining = shared.queues.held_for(place.name());
                    return Err(LockError::Contended { key, remaining, votes: Votes::default() });
                }
            }
        }
    }

    /// Asks the nodes, again and again while another holds the lock.
    async fn ask_until(
        &self,
        key: &LockKey,
        terms: Terms,
        place: &Place,
        deadline: Option<Instant>,
    ) -> Result<LockGuard, LockError> {
        let node_timeout = self.shared.ballot.node_timeout;
        let mut bell = place.bell();
        let mut backoff = Backoff::new();
        loop {
            if let Some(bell) = &bell {
                bell.reset();
            }
            let (refused, remaining) = match self.ask(key, terms).await {
                Err(LockError::Contended { key, remaining, votes }) => {
                    (LockError::Contended { key, remaining, votes }, remaining)
                }
                other => return other,
            };
            if let Some(guard) = self.re_enter(key, place.name())? {
                return Ok(guard);
            }
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Err(refused);
            }
            match (&bell, remaining) {
                // What was released before we listened may have been missed: ask once more.
                (None, _) => bell = Some(place.listen(node_timeout.min(left)).await),
                (Some(bell), Some(remaining)) => bell.rung(poll_pause(remaining).min(left)).await,
                (Some(_), None) => sleep(backoff.pause().min(left)).await,
            }
        }
    }

    fn name(&self, key: &LockKey) -> LockName {
        LockName::new(&self.shared.prefix, key, self.dialect)
    }

    fn terms(&self) -> Result<Terms, LockError> {
        let expire = self.expire.unwrap_or(self.shared.expire);
        self.shared.check_expire(expire)?;
        let renew = self.renew || self.expire.is_none();
        let (max_hold, hold_at_least) = (self.max_hold, self.hold_at_least);
        if let Some(at_least) = hold_at_least.filter(|at_least| *at_least > expire) {
            let allowed = format!("at most the lease (expire) of {expire:?}");
            let value = format!("{at_least:?}");
            return Err(InvalidOption::new("hold_at_least", value, allowed).into());
        }
        if let Some(max_hold) = max_hold.filter(|_| !renew) {
            let allowed = "used with renewal, which it bounds: add `renew`";
            return Err(InvalidOption::new("max_hold", format!("{max_hold:?}"), allowed).into());
        }
        Ok(Terms { expire, renew, max_hold, hold_at_least })
    }

    /// One attempt. What this process holds itself is refused without a round trip.
    async fn attempt(&self, key: &LockKey, terms: Terms) -> Result<LockGuard, LockError> {
        self.shared.check_open()?;
        let name = self.name(key);
        if let Some(guard) = self.re_enter(key, &name)? {
            return Ok(guard);
        }
        if let Some(remaining) = self.shared.queues.held_for(&name) {
            let (key, remaining) = (key.clone(), Some(remaining));
            return Err(LockError::Contended { key, remaining, votes: Votes::default() });
        }
        match self.ask(key, terms).await {
            // Perhaps by what was joined with this in the same scope.
            Err(refused @ LockError::Contended { .. }) => self.re_enter(key, &name)?.ok_or(refused),
            result => result,
        }
    }

    /// What this scope holds already is shared, or refused; it is never waited for.
    fn re_enter(&self, key: &LockKey, name: &LockName) -> Result<Option<LockGuard>, LockError> {
        match scope::held(&self.shared.queues, name) {
            Some(held) => self.share(key, held),
            None => Ok(None),
        }
    }

    /// Shares what this scope holds, if it is wanted so; `None` if it is being released.
    fn share(&self, key: &LockKey, held: Arc<Held>) -> Result<Option<LockGuard>, LockError> {
        // A number cannot be made up for one that has none.
        if self.reentrant && (!self.fenced || held.token().is_some()) {
            Ok(LockGuard::share(&self.shared, held))
        } else {
            Err(LockError::AlreadyHeld { key: key.clone() })
        }
    }

    /// Asks the nodes once.
    async fn ask(&self, key: &LockKey, terms: Terms) -> Result<LockGuard, LockError> {
        let shared = &self.shared;
        let _under_way = shared.background.under_way();
        shared.check_open()?;
        let mut claim = Claim::new(self.name(key), key.clone());
        if let Some(at_least) = terms.hold_at_least {
            claim = claim.hold_at_least(at_least, &shared.ballot.clock);
        }
        if self.fenced {
            claim = claim.fenced(&shared.counter);
        }
        let claim = Arc::new(claim);
        match shared.ballot.acquire(&claim, terms.expire).await {
            Ok(Grant { since, token }) => {
                let clock = Arc::clone(&shared.ballot.clock);
                let held = Arc::new(Held::new(claim, clock, since, terms.expire));
                if let Some(token) = token {
                    held.set_token(token);
                }
                shared.queues.hold(&held, scope::current());
                let guard = LockGuard::new(Arc::clone(shared), held, terms.renewal());
                // A shutdown in between has not seen this guard; it releases as it is dropped.
                shared.check_open()?;
                Ok(guard)
            }
            Err(refusal) => Err(error(refusal, key.clone(), terms.expire)),
        }
    }

    /// Takes over a lock that another caller of this process held; `None` if it is lost on the way.
    async fn take_over(
        &self,
        held: Arc<Held>,
        terms: Terms,
    ) -> Result<Option<LockGuard>, LockError> {
        let ballot = &self.shared.ballot;
        let guard = LockGuard::new(Arc::clone(&self.shared), Arc::clone(&held), terms.renewal());
        if self.fenced
            && guard.is_valid()
            && let Some(token) = held.claim().next_token()
        {
            match ballot.confirm(held.claim(), token, held.remaining()).await {
                Ok(()) => held.set_token(token),
                Err(Refusal::Contended { .. }) => held.discard(),
                Err(refusal) => return Err(error(refusal, guard.key().clone(), terms.expire)),
            }
        }
        // It may have taken this caller long to look at what it was handed (invariant 1).
        if !guard.is_valid() {
            held.discard();
            return Ok(None);
        }
        if guard.remaining() < terms.expire * 9 / 10 {
            // Until that is confirmed, the guard tells what is left of the old lease.
            let (lease, expire) = (guard.lease(), terms.expire);
            self.shared.background.spawn(async move {
                if let Err(error) = lease.extend(expire).await
                    // It may have been released, or handed on, meanwhile.
                    && held.state() == State::Held
                {
                    tracing::warn!(%error, "the lease of a lock that was handed over was not extended");
                }
            });
        }
        Ok(Some(guard))
    }
}

#[derive(Debug, Clone, Copy)]
struct Terms {
    expire: Duration,
    renew: bool,
    max_hold: Option<Duration>,
    hold_at_least: Option<Duration>,
}

impl Terms {
    fn renewal(self) -> Option<Renewal> {
        let until = self.max_hold.and_then(|max_hold| Instant::now().checked_add(max_hold));
        self.renew.then_some(Renewal { lease: self.expire, until })
    }
}

/// Checks a lease.
pub(crate) fn check_expire(option: &'static str, expire: Duration) -> Result<(), InvalidOption> {
    if (validity::MIN_EXPIRE..=validity::MAX_EXPIRE).contains(&expire) {
        Ok(())
    } else {
        Err(InvalidOption::new(option, format!("{expire:?}"), "from 10 ms to 7 days"))
    }
}

fn error(refusal: Refusal, key: LockKey, expire: Duration) -> LockError {
    match refusal {
        Refusal::Contended { remaining, votes } => LockError::Contended { key, remaining, votes },
        Refusal::Unavailable(votes) => LockError::Unavailable { key, votes },
        Refusal::TimedOut { elapsed, votes } => LockError::TimedOut { key, elapsed, expire, votes },
        Refusal::Foreign(votes) => LockError::ForeignKey { key, votes },
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("key", &self.key)
            .field("dialect", &self.dialect)
            .field("expire", &self.expire)
            .field("renew", &self.renew)
            .field("max_hold", &self.max_hold)
            .field("hold_at_least", &self.hold_at_least)
            .field("reentrant", &self.reentrant)
            .field("fenced", &self.fenced)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
