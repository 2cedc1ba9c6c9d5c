//! Repeats an acquisition whose votes are split, also without a waiting time.
//!
//! Callers that ask at the same moment may get some nodes each, so that none has a quorum. Without another attempt, each of
//! them would leave the work to the others, and nobody would do it.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::acquisition::Acquisition;
use super::scope;
use crate::ballot::Standing;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::jitter::jitter;

/// How often an attempt is repeated at most.
const REPETITIONS: u32 = 6;
/// The range of the first pause, in round trips. The range of each later one is twice as long.
const FIRST_PAUSE: std::ops::Range<f64> = 0.5..4.0;
/// The shortest time that counts as a round trip: the runtime's timers count milliseconds.
const ROUND_TRIP: Duration = Duration::from_millis(1);
/// The end of the range of the longest pause, unless a round trip is longer.
const LONGEST: Duration = Duration::from_millis(200);

impl Acquisition {
    /// Repeats a refused attempt as long as its votes are split, after random pauses. `round_trip` is the time that the attempt
    /// took. The release of each attempt is sent before the next one begins.
    pub(super) async fn repeat(
        &self,
        mut refused: LockError,
        mut round_trip: Duration,
    ) -> Result<LockGuard, LockError> {
        let mut former = None;
        for repetition in 0..REPETITIONS {
            let standing = Standing::of_refusal(&refused);
            let Some(standing) =
                standing.filter(|standing| standing.is_worth_repeating(former.as_ref()))
            else {
                break;
            };
            tracing::trace!(lock = %self.spec.key(), repetition, "the votes are split");
            former = Some(standing);
            sleep(pause(repetition, round_trip)).await;
            self.context.queues.check_drain(scope::caller)?;
            let begun = Instant::now();
            match self.try_once().await {
                Err(error) => refused = error,
                granted => return granted,
            }
            round_trip = begun.elapsed();
        }
        Err(refused)
    }
}

/// Returns the pause before a repetition.
fn pause(repetition: u32, round_trip: Duration) -> Duration {
    let round_trip = round_trip.max(ROUND_TRIP);
    let longest = LONGEST.max(round_trip).mul_f64(jitter(0.5..1.0));
    round_trip.mul_f64(jitter(FIRST_PAUSE) * f64::from(1 << repetition)).min(longest)
}
