//! Callers that wait until they have the lock. The history shows whether one of them has waited too long.

use std::io;

use rand::RngExt;
use rand::seq::IteratorRandom;
use redlock_tests::{LONGEST_LEASE, Sharing};
use tokio::time::sleep;

use super::Contender;
use super::contended::kind;

const KEYS: [&str; 3] = ["patient:0", "patient:1", "patient:2"];

impl Contender {
    /// Acquires locks until SIGTERM: exclusive and shared ones, some of them fair, and several keys at once.
    pub(super) async fn wait_patiently(mut self) -> Result<(), String> {
        let end = self.end.clone();
        let turns = async {
            loop {
                let acquired = if self.settings.has_sets && self.one_in(4) {
                    self.wait_for_set().await
                } else {
                    self.wait_for_one().await
                };
                self.pause(acquired.map_err(|error| error.to_string())?).await;
            }
        };
        end.run_until_cancelled(turns).await.unwrap_or(Ok(()))
    }

    async fn wait_for_one(&mut self) -> io::Result<bool> {
        let key = KEYS[self.choices.random_range(0..KEYS.len())];
        let mut request = self.locks.lock(key).expire(LONGEST_LEASE).wait_forever();
        let has_modes = self.settings.has_modes;
        let shares = self.one_in(2) && has_modes;
        let sharing = if shares { Sharing::Readers } else { Sharing::Exclusive };
        if sharing == Sharing::Readers {
            request = request.shared(true);
        }
        if self.one_in(2) && has_modes {
            request = request.fair(true);
        }
        let attempt = self.history.ask(key, self.settings.patience)?;
        let guard = match request.acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                attempt.refused(kind(&error));
                return Ok(false);
            }
        };
        let belief =
            attempt.granted_to(sharing, None, || self.settings.client.believes(guard.remaining()));
        let time = self.millis(0, 20);
        sleep(time).await;
        drop(belief);
        drop(guard.release().await);
        Ok(true)
    }

    async fn wait_for_set(&mut self) -> io::Result<bool> {
        let keys = KEYS.iter().sample(&mut self.choices, 2);
        let keys: Vec<_> = keys.into_iter().map(|key| (*key).to_owned()).collect();
        let request = self.locks.lock_all(&keys).expire(LONGEST_LEASE).wait_forever();
        let acquired = self.acquire_set(request, &keys, self.settings.patience, None).await?;
        let Some((guard, beliefs)) = acquired else { return Ok(false) };
        let time = self.millis(0, 20);
        sleep(time).await;
        drop(beliefs);
        drop(guard.release().await);
        Ok(true)
    }
}
