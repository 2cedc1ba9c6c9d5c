//! Acquisitions of contended keys with random options, held and released in every way.

use std::error::Error;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use rand::RngExt;
use redis::Cmd;
use redlock_core::{Dialect, FencingToken, HoldError, LockError, LockGuard, LockRequest};
use redlock_tests::{Belief, CONTENDED_KEYS, Client, LONGEST_LEASE, Sharing};
use tokio::time::{Instant, sleep, timeout};

use super::Contender;

/// The number of keys that are also shared, by readers or by holders of permits.
const SHARED: u32 = 4;
/// The number of keys that use the plain dialect. The other keys use Redisson's.
pub(super) const PLAIN: u32 = 6;

/// Acquires a lock, and returns the number of the fencing token if `fenced`.
async fn acquire(
    request: LockRequest,
    fenced: bool,
) -> Result<(LockGuard, Option<i64>), LockError> {
    let guard = request.fenced(fenced).acquire().await?;
    let number = guard.fencing_token().map(FencingToken::number);
    Ok((guard, number))
}

impl Contender {
    /// Acquires contended keys until SIGTERM.
    pub(super) async fn contend(mut self) -> Result<(), String> {
        while !self.end.is_cancelled() {
            let held = self.turn().await.map_err(|error| error.to_string())?;
            self.pause(held).await;
        }
        Ok(())
    }

    /// Makes one acquisition. If it succeeds, holds the lock, releases it, and returns `true`.
    async fn turn(&mut self) -> Result<bool, Box<dyn Error>> {
        let number = self.choices.random_range(0..CONTENDED_KEYS);
        let key = format!("hot:{number}");
        let expire = LONGEST_LEASE.mul_f64(self.choices.random_range(0.5..=1.0));
        let wait_time = if self.one_in(2) { self.millis(20, 400) } else { Duration::ZERO };
        let renewed = self.one_in(4);
        let has_modes = self.settings.has_modes;
        let is_plain = number < PLAIN || !has_modes;
        let dialect = if is_plain { Dialect::Plain } else { Dialect::Redisson };
        let mut request =
            self.locks.lock(&key).expire(expire).wait_time(wait_time).dialect(dialect);
        if renewed {
            request = request.renew(true);
        }
        if self.one_in(10) {
            request = request.min_hold(expire / 4);
        }
        let fair = number < PLAIN && self.one_in(6) && has_modes;
        if fair {
            request = request.fair(true);
        }
        let sharing = self.sharing(number);
        request = match sharing {
            Sharing::Exclusive => request,
            Sharing::Readers => request.shared(true),
            Sharing::Permits(permits) => request.permits(permits),
        };
        let fenced = sharing == Sharing::Exclusive && self.one_in(2);
        let patience = self.one_in(6).then(|| self.millis(0, 100));

        // A fenced acquisition has a second round of messages, which writes the number back. An exclusive one asks again
        // if shared holders have refused it. A reader may wait for another reader's reply, and extend a lease.
        let rounds = match sharing {
            Sharing::Exclusive => 2 + u32::from(fenced),
            Sharing::Readers => 3,
            Sharing::Permits(_) => 1,
        };
        let attempt = self.history.ask(&key, wait_time + self.node_timeout * rounds)?;
        let acquired = match patience {
            Some(patience) => timeout(patience, acquire(request, fenced)).await.ok(),
            None => Some(acquire(request, fenced).await),
        };
        match acquired {
            // The timeout dropped the request. Dropping `attempt` records that.
            None => {}
            Some(Err(error)) => attempt.refused(kind(&error)),
            Some(Ok((guard, number))) => {
                let believes = || self.settings.client.believes(guard.remaining());
                let belief = attempt.granted_to(sharing, number, believes);
                let Some(guard) = self.change_mode(guard, &belief).await else { return Ok(true) };
                self.hold(&guard, belief, expire).await?;
                self.release(guard, &key).await;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns with whom the next holder of a key shares it.
    fn sharing(&mut self, number: u32) -> Sharing {
        match number {
            _ if !self.settings.has_modes => Sharing::Exclusive,
            // A quorum has no permits.
            0 if self.settings.urls.len() == 1 && self.one_in(2) => {
                Sharing::Permits(self.choices.random_range(1..4))
            }
            0..SHARED if self.one_in(2) => Sharing::Readers,
            _ => Sharing::Exclusive,
        }
    }

    /// Sometimes turns an exclusive lock into a shared one. Returns `None` if the lock is lost.
    async fn change_mode(&mut self, guard: LockGuard, belief: &Belief) -> Option<LockGuard> {
        let has_modes = self.settings.has_modes && guard.keys()[0].as_str() < "hot:4";
        if !has_modes || guard.is_shared() || !self.one_in(3) {
            return Some(guard);
        }
        // The holder knows that others may share the lock from now on.
        belief.change(Sharing::Readers);
        let lost = matches!(guard.downgrade().await, Err(HoldError::Lost(_)));
        (!lost).then_some(guard)
    }

    /// Holds a lock for a short time, for a part of its lease, for longer than its lease, or for longer than
    /// its lease with one extension.
    async fn hold(
        &mut self,
        guard: &LockGuard,
        mut belief: Belief,
        expire: Duration,
    ) -> Result<(), &'static str> {
        let lease = |share: f64| expire.mul_f64(share);
        let share = self.choices.random_range(0.1..0.9);
        let (time, mut extend_at) = match self.choices.random_range(0..10) {
            0..=3 if !self.holds_long => (self.millis(0, 20), None),
            0..=5 => (lease(share), None),
            6..=7 => (lease(2.0), None),
            _ => (lease(3.0), Some(lease(share))),
        };
        // Holder code that does not check its guard goes on after a loss.
        let ignores_loss = self.one_in(4);
        let begun = Instant::now();
        let mut was_lost = false;
        while !self.end.is_cancelled() {
            let left = time.saturating_sub(begun.elapsed());
            let lost = belief.look(|| self.settings.client.believes(guard.remaining())).is_zero();
            if was_lost && !lost {
                return Err("a lost lock is valid again");
            }
            if lost && guard.lost().now_or_never().is_none() {
                return Err("a guard without validity does not report the loss");
            }
            was_lost = lost;
            if left.is_zero() || lost && !ignores_loss {
                break;
            }
            if extend_at.take_if(|at| begun.elapsed() >= *at).is_some() {
                let patience = if self.one_in(4) { self.millis(0, 20) } else { expire };
                drop(timeout(patience, guard.extend(expire)).await);
            }
            let pause = self.millis(1, 10);
            sleep(pause.min(left)).await;
        }
        Ok(())
    }

    /// Releases, drops or keeps the lock. The caller has dropped the belief before.
    async fn release(&mut self, guard: LockGuard, key: &str) {
        if self.settings.client == Client::DeletesWithoutComparing {
            guard.keep_until_expiry();
            join_all(self.settings.server_urls.iter().map(|url| delete(url, key))).await;
            return;
        }
        match self.choices.random_range(0..20) {
            0..=11 => drop(guard.release().await),
            12..=15 => drop(guard),
            16..=18 => {
                let patience = self.choices.random_range(0..2000);
                drop(timeout(Duration::from_micros(patience), guard.release()).await);
            }
            _ => guard.keep_until_expiry(),
        }
    }
}

pub(super) fn kind(error: &LockError) -> &'static str {
    match error {
        LockError::Contended { .. } => "contended",
        LockError::Split { .. } => "split",
        LockError::Unavailable { .. } => "unavailable",
        LockError::TimedOut { .. } => "timed out",
        LockError::ForeignKey { .. } => "foreign key",
        LockError::TooManyWaiters { .. } => "too many waiters",
        LockError::ShutDown => "shut down",
        _ => "other",
    }
}

async fn delete(url: &str, key: &str) -> redis::RedisResult<()> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    Cmd::new().arg("DEL").arg(key).query_async(&mut connection).await
}
