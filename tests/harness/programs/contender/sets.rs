//! Acquisitions of several contended keys at once.

use std::io;
use std::time::Duration;

use rand::RngExt;
use rand::seq::IteratorRandom;
use redlock_core::{LockGuard, LockRequest};
use redlock_tests::{Attempt, Belief, LONGEST_LEASE};
use tokio::time::{Instant, sleep, timeout};

use super::Contender;
use super::contended::{PLAIN, kind};

/// The largest number of keys of a set.
const LARGEST: usize = 3;

impl Contender {
    /// Acquires sets of contended keys until SIGTERM.
    pub(super) async fn contend_for_sets(mut self) -> Result<(), String> {
        while !self.end.is_cancelled() {
            let held = self.contend_for_set().await.map_err(|error| error.to_string())?;
            self.pause(held).await;
        }
        Ok(())
    }

    async fn contend_for_set(&mut self) -> io::Result<bool> {
        let size = self.choices.random_range(2..=LARGEST);
        let keys = (0..PLAIN).sample(&mut self.choices, size);
        let keys: Vec<_> = keys.into_iter().map(|number| format!("hot:{number}")).collect();
        let wait_time = if self.one_in(2) { self.millis(20, 400) } else { Duration::ZERO };
        let patience = self.one_in(6).then(|| self.millis(0, 100));
        let request = self.locks.lock_all(&keys).expire(LONGEST_LEASE).wait_time(wait_time);
        // A set is requested again if shared holders have refused it.
        let within = wait_time + self.node_timeout * 2;
        let acquired = self.acquire_set(request, &keys, within, patience).await?;
        let Some((guard, mut beliefs)) = acquired else { return Ok(false) };
        let (begun, time) =
            (Instant::now(), LONGEST_LEASE.mul_f64(self.choices.random_range(0.0..0.5)));
        while begun.elapsed() < time && !self.end.is_cancelled() {
            let remaining = || self.settings.client.believes(guard.remaining());
            if beliefs.iter_mut().any(|belief| belief.look(remaining).is_zero()) {
                break;
            }
            let pause = self.millis(1, 10);
            sleep(pause).await;
        }
        drop(beliefs);
        if self.one_in(2) {
            drop(guard.release().await);
        }
        Ok(true)
    }

    /// Acquires several keys, and records an attempt for each. Returns `None` after a failure, or if the caller has dropped
    /// the request after `patience`.
    pub(super) async fn acquire_set(
        &self,
        request: LockRequest,
        keys: &[String],
        within: Duration,
        patience: Option<Duration>,
    ) -> io::Result<Option<(LockGuard, Vec<Belief>)>> {
        let ask = |key: &String| self.history.ask(key, within);
        let attempts: Vec<Attempt> = keys.iter().map(ask).collect::<Result<_, _>>()?;
        let acquired = match patience {
            Some(patience) => timeout(patience, request.acquire()).await.ok(),
            None => Some(request.acquire().await),
        };
        Ok(match acquired {
            // The timeout dropped the request. Dropping the attempts records that.
            None => None,
            Some(Ok(guard)) => {
                let remaining = || self.settings.client.believes(guard.remaining());
                let granted = |attempt: Attempt| attempt.granted(None, remaining);
                let beliefs = attempts.into_iter().map(granted).collect();
                Some((guard, beliefs))
            }
            Some(Err(error)) => {
                for attempt in attempts {
                    attempt.refused(kind(&error));
                }
                None
            }
        })
    }
}
