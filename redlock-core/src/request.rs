//! The options of one acquisition.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::ballot::{Refusal, validity};
use crate::error::{InvalidOption, LockError};
use crate::guard::LockGuard;
use crate::key::{KeyError, LockKey};
use crate::lease::Held;
use crate::manager::Shared;
use crate::node::Claim;
use crate::queue::Backoff;

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
    expire: Option<Duration>,
    renew: bool,
    wait_time: Option<Duration>,
}

impl LockRequest {
    pub(crate) fn new(shared: Arc<Shared>, key: Result<LockKey, KeyError>) -> Self {
        Self { shared, key, expire: None, renew: false, wait_time: None }
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

    /// Sets the longest time that [`acquire`](Self::acquire) waits while another holds the lock.
    /// Defaults to none: one attempt.
    pub fn wait_time(mut self, wait_time: Duration) -> Self {
        self.wait_time = Some(wait_time);
        self
    }

    /// Makes one attempt to acquire the lock, whatever [`wait_time`](Self::wait_time) says.
    ///
    /// # Errors
    ///
    /// Every variant of [`LockError`]. In each case the lock is not held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point gives back whatever it acquired, in the background.
    pub async fn try_acquire(self) -> Result<LockGuard, LockError> {
        let lease = self.lease()?;
        self.attempt(self.key.clone()?, lease).await
    }

    /// Acquires the lock, waiting up to [`wait_time`](Self::wait_time) while another holds it.
    ///
    /// Waits for another holder only: where no quorum of nodes can be had it returns at once, so
    /// that callers learn of it.
    ///
    /// # Errors
    ///
    /// Every variant of [`LockError`]. In each case the lock is not held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point gives back whatever it acquired, in the background, and
    /// ends the waiting.
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        let lease = self.lease()?;
        let key = self.key.clone()?;
        let Some(wait_time) = self.wait_time else {
            return self.attempt(key, lease).await;
        };
        let start = Instant::now();
        let mut backoff = Backoff::new();
        loop {
            let refused = match self.attempt(key.clone(), lease).await {
                Err(LockError::Contended { key, remaining, votes }) => {
                    (LockError::Contended { key, remaining, votes }, remaining)
                }
                other => return other,
            };
            let left = wait_time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(refused.0);
            }
            sleep(backoff.pause(refused.1).min(left)).await;
        }
    }

    fn lease(&self) -> Result<Lease, LockError> {
        let expire = self.expire.unwrap_or(self.shared.expire);
        check_expire("expire", expire)?;
        let renew = self.renew || self.expire.is_none();
        Ok(Lease { expire, renew })
    }

    async fn attempt(&self, key: LockKey, lease: Lease) -> Result<LockGuard, LockError> {
        let Lease { expire, renew } = lease;
        let shared = &self.shared;
        shared.check_open()?;
        let claim = Arc::new(Claim::new(&shared.prefix, key));
        match shared.ballot.acquire(&claim, expire).await {
            Ok(since) => {
                let held = Held::new(claim, Arc::clone(&shared.ballot.clock), since, expire);
                let guard =
                    LockGuard::new(Arc::clone(shared), Arc::new(held), renew.then_some(expire));
                // A shutdown in between has not seen this guard; it releases as it is dropped.
                shared.check_open()?;
                Ok(guard)
            }
            Err(refusal) => Err(error(refusal, claim.key().clone(), expire)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    expire: Duration,
    renew: bool,
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
            .field("expire", &self.expire)
            .field("renew", &self.renew)
            .field("wait_time", &self.wait_time)
            .finish_non_exhaustive()
    }
}
