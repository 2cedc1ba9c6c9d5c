//! Callers that wait for so long that no fault can keep them out.

use std::error::Error;

use rand::RngExt;
use rand::seq::IteratorRandom;
use redlock_core::LockError;
use redlock_tests::Sharing;
use tokio::time::{Instant, sleep};

use super::Contender;
use super::contended::kind;

const KEYS: [&str; 3] = ["patient:0", "patient:1", "patient:2"];

impl Contender {
    /// Acquires locks until SIGTERM: exclusive and shared ones, some of them fair, and several keys at once. Fails if a
    /// caller waits in vain.
    pub(super) async fn wait_patiently(mut self) -> Result<(), String> {
        let end = self.end.clone();
        let turns = async {
            loop {
                let turn = async {
                    if self.one_in(4) {
                        self.patient_set().await
                    } else {
                        self.patient_turn().await
                    }
                };
                turn.await.map_err(|error| error.to_string())?;
                let pause = self.millis(0, 30);
                sleep(pause).await;
            }
        };
        end.run_until_cancelled(turns).await.unwrap_or(Ok(()))
    }

    async fn patient_turn(&mut self) -> Result<(), Box<dyn Error>> {
        let key = KEYS[self.choices.random_range(0..KEYS.len())];
        let mut request = self.locks.lock(key).expire(self.lease).wait_time(self.patience);
        let sharing = if self.one_in(2) { Sharing::Readers } else { Sharing::Exclusive };
        if sharing == Sharing::Readers {
            request = request.shared();
        }
        if self.one_in(2) {
            request = request.fair();
        }
        // A fair caller leaves its queue at the end.
        let attempt = self.history.ask(key, self.patience + self.node_timeout * 4)?;
        let begun = Instant::now();
        let guard = match request.acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                attempt.refused(kind(&error));
                return Ok(self.check(begun, &error)?);
            }
        };
        let belief = attempt.granted_to(sharing, None, || self.client.believes(guard.remaining()));
        let time = self.millis(0, 20);
        sleep(time).await;
        drop(belief);
        drop(guard.release().await);
        Ok(())
    }

    async fn patient_set(&mut self) -> Result<(), Box<dyn Error>> {
        let keys = KEYS.iter().sample(&mut self.choices, 2);
        let keys: Vec<_> = keys.into_iter().map(|key| (*key).to_owned()).collect();
        let begun = Instant::now();
        let acquired = self.acquire_set(&keys, self.patience, None).await?;
        let Some(acquired) = acquired else { return Ok(()) };
        let (guard, beliefs) = match acquired {
            Ok(acquired) => acquired,
            Err(error) => return Ok(self.check(begun, &error)?),
        };
        let time = self.millis(0, 20);
        sleep(time).await;
        drop(beliefs);
        drop(guard.release().await);
        Ok(())
    }

    /// Describes a failure, unless no quorum of nodes answers: a caller waits for other holders, but not for an outage to
    /// end.
    fn check(&self, begun: Instant, error: &LockError) -> Result<(), String> {
        if let LockError::Unavailable { .. } = error {
            return Ok(());
        }
        let (patience, took, error) = (self.patience, begun.elapsed(), error.diagnostics());
        Err(format!("a caller that waits for {patience:?} has failed after {took:?}: {error}"))
    }
}
