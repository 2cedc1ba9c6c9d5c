//! Waiting in a fair queue, before the nodes are asked.

use tokio::time::{Instant, timeout_at};

use super::acquisition::Acquisition;
use crate::error::{LockError, Votes};
use crate::guard::LockGuard;
use crate::queue::{FairPlace, OutageWait, Waiter};

impl Acquisition<'_> {
    /// Makes one attempt to acquire the lock, unless a fair caller waits for it.
    pub(super) async fn try_once_fairly(&self) -> Result<LockGuard, LockError> {
        // A lock that this process holds is refused without a round trip.
        if let Some(conflict) = self.context.queues.local_conflict(&self.spec) {
            return Err(self.contended_locally(conflict));
        }
        if self.context.fair.is_occupied(&self.spec, self.keys.first()).await? {
            return Err(self.contended(0, None));
        }
        self.try_once().await
    }

    /// Waits until the first ticket of the fair queue belongs to this process. Returns a guard if the scope of the caller
    /// gets the lock meanwhile: a caller never waits for a lock of its own scope.
    pub(super) async fn await_turn(
        &self,
        place: &FairPlace,
        waiter: &Waiter,
        outage_wait: &mut OutageWait,
        deadline: Option<Instant>,
    ) -> Result<Option<LockGuard>, LockError> {
        loop {
            // A caller behind another process waits for a holder, as if the nodes had refused it the lock.
            let is_behind = || {
                outage_wait.begin();
                waiter.record_quorum();
            };
            let turn = async {
                tokio::select! {
                    biased;
                    turn = place.turn(is_behind) => Some(turn),
                    () = waiter.notified() => None,
                }
            };
            let turn = match deadline {
                Some(deadline) => timeout_at(deadline, turn).await,
                None => Ok(turn.await),
            };
            match turn {
                Ok(Some(Ok(()))) => return Ok(None),
                Ok(Some(Err(votes))) => return Err(self.no_conductor(votes)),
                Ok(None) => {
                    if let Some(guard) = self.share_in_scope()? {
                        return Ok(Some(guard));
                    }
                }
                Err(_) => return Err(self.timed_out(waiter, 0)),
            }
        }
    }

    fn no_conductor(&self, votes: Votes) -> LockError {
        LockError::Unavailable { key: self.keys.first().clone(), votes }
    }
}
