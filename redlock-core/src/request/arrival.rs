//! The arrival of a caller while others wait through an outage.

use super::acquisition::Acquisition;
use super::wait::took_turn;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::queue::{FairPlace, OutageWait, Waiter};

impl Acquisition<'_> {
    /// Makes one attempt while the waiters before this caller keep their places through an outage. Returns the failure of
    /// the nodes at once, and `None` if the caller has to wait.
    pub(super) async fn arrive_in_outage(
        &self,
        place: Option<&FairPlace>,
        waiter: &Waiter,
        outage_wait: &mut OutageWait,
    ) -> Result<Option<LockGuard>, LockError> {
        if place.is_some() && self.context.ballot.has_quorum() {
            // The outage may be over, and the attempt of a fair caller would overtake the callers before it.
            self.context.fair.is_occupied(&self.spec, self.keys.first()).await?;
            outage_wait.begin();
            return Ok(None);
        }
        match self.try_once().await {
            Ok(guard) => {
                took_turn(place);
                Ok(Some(guard))
            }
            Err(LockError::Contended { .. }) => {
                outage_wait.record_refusal(waiter);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
