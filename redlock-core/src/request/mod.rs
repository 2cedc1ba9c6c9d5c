//! The options of one acquisition.

mod acquire;
mod fenced;
pub(crate) mod scope;
mod take_over;
mod terms;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::{KeyError, LockKey};
use crate::lock::Dialect;
use crate::telemetry::Acquisition;

pub use fenced::FencedRequest;

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
#[expect(clippy::struct_excessive_bools, reason = "each is an option by itself")]
#[must_use = "a request does nothing until `acquire` or `try_acquire` is awaited"]
pub struct LockRequest {
    context: Arc<Context>,
    key: Result<LockKey, KeyError>,
    dialect: Dialect,
    expire: Option<Duration>,
    renew: bool,
    max_hold: Option<Duration>,
    min_hold: Option<Duration>,
    keep: bool,
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
    pub(crate) fn new(context: Arc<Context>, key: Result<LockKey, KeyError>) -> Self {
        Self {
            dialect: context.dialect,
            context,
            key,
            expire: None,
            renew: false,
            max_hold: None,
            min_hold: None,
            keep: false,
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
    /// and runs out, so that work that hangs does not hold its lock for ever. Must be longer than zero.
    /// An error where the lease is not renewed. Defaults to no bound.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Keeps the lock on the nodes for at least this time since the acquisition, even if it is
    /// released before: for work that must not be repeated sooner, on whichever machine and however
    /// its clock runs. Where a lock is [shared](Self::reentrant), the latest end that one of its
    /// requests asks for counts. A crashed holder's lock still runs out after its lease. Not longer than the
    /// lease. Defaults to none.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.min_hold = Some(min_hold);
        self
    }

    /// Leaves the lock on the nodes until its lease runs out, however its guard ends, as
    /// [`LockGuard::keep_until_expiry`] does: releasing it sends nothing and succeeds. The request never
    /// takes over a lock with less than its whole lease. Where a lock is [shared](Self::reentrant), one
    /// request that asks for this is enough. An error together with [`min_hold`](Self::min_hold). Defaults
    /// to releasing the lock.
    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }

    /// Shares the lock if the same [scope](crate::scope()) holds it already, instead of failing with
    /// [`LockError::AlreadyHeld`]. The lock is then released with the last of its guards; nothing is
    /// sent, and the lease stays what it was, unless it is too short for
    /// [`min_hold`](Self::min_hold) or [`keep`](Self::keep): then it is extended. Defaults to not sharing.
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
    /// Defaults to none: one attempt. An outage of the nodes may end the waiting earlier, see
    /// [`outage_grace`](crate::LockManagerBuilder::outage_grace).
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
    /// Waits for another holder only: where no quorum of nodes answers its first question, it returns
    /// at once. A caller that waits already, because the nodes have refused it or because it queues
    /// behind another caller of this manager, keeps its place through an outage for up to the
    /// manager's [`outage_grace`](crate::LockManagerBuilder::outage_grace), and returns
    /// [`LockError::Unavailable`] after that. The nodes' answers to the last question are waited for. Where
    /// nodes are silent, that takes up to the manager's
    /// [`node_timeout`](crate::LockManagerBuilder::node_timeout) longer, and twice that for a
    /// [fenced](Self::fenced) lock, or for a shared one that has to be extended for
    /// [`min_hold`](Self::min_hold) or [`keep`](Self::keep). Where this process is late, it takes longer, but
    /// never longer than the lease.
    ///
    /// # Fairness
    ///
    /// Callers that wait for one key with the same manager, or with clones of it, get the lock in the order
    /// in which they came: first come, first served. A caller without a waiting time does not queue: it makes
    /// its one attempt at once, and may overtake the waiters unless this manager holds the lock. During an
    /// outage of the nodes, so may a new caller.
    ///
    /// A lock that its holder gives back is handed over to the next waiter of the same manager without asking
    /// the nodes. Other processes get their turn, because hand-over has bounds:
    ///
    /// * Each time the nodes grant the lock, at most 16 callers of one manager hold it in a row, and at most 4
    ///   if other processes listened for its last release on the nodes.
    /// * No hand-over happens later than 100 ms after the nodes granted the lock.
    /// * After that the lock is released on the nodes. If other processes listen for the release, this manager
    ///   waits for 2 ms before it asks for the lock again.
    /// * The next waiter gets the lock only if at least 3/4 of the lease that it asks for is left. If less than
    ///   9/10 is left, the lease is extended in the background.
    ///
    /// Between processes neither an order nor a share is promised: the process whose request reaches a quorum
    /// of nodes first gets the lock.
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
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("key", &self.key)
            .field("dialect", &self.dialect)
            .field("expire", &self.expire)
            .field("renew", &self.renew)
            .field("max_hold", &self.max_hold)
            .field("min_hold", &self.min_hold)
            .field("keep", &self.keep)
            .field("reentrant", &self.reentrant)
            .field("fenced", &self.fenced)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockManager;

    #[tokio::test]
    async fn a_renewal_that_is_bounded_by_zero_is_an_invalid_option() {
        let locks = LockManager::in_memory();
        let bounded = |max_hold| locks.lock("a").renew().max_hold(max_hold);
        for request in [bounded(Duration::ZERO), locks.lock("a").max_hold(Duration::ZERO)] {
            let error = request.clone().try_acquire().await.unwrap_err();
            assert!(matches!(error, LockError::InvalidOption(_)), "{error:?}");
            assert_eq!(error.to_string(), "max_hold is 0ns, but must be longer than zero");
            let error = request.fenced().acquire().await.unwrap_err();
            assert!(matches!(error, LockError::InvalidOption(_)), "{error:?}");
        }
        let shortest = bounded(Duration::from_nanos(1)).try_acquire().await.unwrap();
        shortest.release().await.unwrap();
    }

    /// `Retry-After` of an answer is made of it.
    #[tokio::test]
    async fn a_waiter_that_gives_up_behind_its_own_process_learns_what_is_left_of_the_lease() {
        let (locks, minute) = (LockManager::in_memory(), Duration::from_secs(60));
        let _held = locks.lock("a").expire(minute).try_acquire().await.unwrap();
        let error = locks.lock("a").wait_time(Duration::from_millis(5)).acquire().await;
        let Err(LockError::Contended { remaining: Some(remaining), votes, .. }) = error else {
            panic!("{error:?}");
        };
        assert!(votes.is_empty(), "the nodes were asked: {votes}");
        assert!((minute / 2..=minute).contains(&remaining), "{remaining:?}");
    }
}
