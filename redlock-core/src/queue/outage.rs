//! Outages: periods in which no quorum of nodes answers.

use tokio::time::Instant;

use crate::error::{LockError, Vote, Votes};
use crate::quorum::quorum;

/// A period in which no quorum of nodes answers. The callers of one key share it, so that the grace period is
/// spent once per outage and not once per waiter.
#[derive(Debug, Clone)]
pub(super) struct Outage {
    /// When the first ballot without a quorum began.
    pub(super) since: Instant,
    /// The votes of the last ballot without a quorum.
    pub(super) votes: Votes,
}

/// Returns whether an acquisition failed because no quorum of nodes answered. This includes an acquisition
/// whose lease was over before the nodes could count as silent.
pub(crate) fn is_outage(error: &LockError) -> bool {
    match error {
        LockError::Unavailable { .. } => true,
        LockError::TimedOut { votes, .. } => {
            let answers =
                votes.iter().filter(|(_, vote)| !matches!(vote, None | Some(Vote::Failed(_))));
            answers.count() < quorum(votes.len())
        }
        _ => false,
    }
}
