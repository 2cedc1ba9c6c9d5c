//! Waiting through an outage, in which no quorum of nodes answers.

use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::Backoff;
use super::waiter::Waiter;
use crate::error::{LockError, NodeError, Vote, Votes};
use crate::quorum::quorum;

/// Decides whether a waiter keeps its place through an outage, and pauses it meanwhile.
///
/// Only a caller that waited before the outage began keeps its place. A new caller fails within one ballot.
#[derive(Debug)]
pub(crate) struct OutageWait {
    waiting_since: Option<Instant>,
    backoff: Option<Backoff>,
}

impl OutageWait {
    pub(crate) fn new(waiter: &Waiter) -> Self {
        Self { waiting_since: waiter.queued_since(), backoff: None }
    }

    /// Records that the caller waits from now on, although no quorum has answered it yet.
    pub(crate) fn begin(&mut self) {
        self.waiting_since.get_or_insert_with(Instant::now);
    }

    /// Records that a quorum has refused the lock. Returns whether this ended an outage. In that case the
    /// waiter has missed the releases that were published during the outage.
    pub(crate) fn record_refusal(&mut self, waiter: &Waiter) -> bool {
        self.begin();
        waiter.record_quorum();
        self.backoff.take().is_some()
    }

    /// Records that a ballot, which began at `begun`, failed with `error` because of an outage, and waits
    /// until a retry makes sense. Returns the error if the caller has to give up: the caller is new, the
    /// grace period or its waiting time is over, or the reasons of the nodes do not pass by themselves.
    ///
    /// Returns early when the waiter is woken, by a shutdown or by another caller that reached a quorum.
    pub(crate) async fn wait_through(
        &mut self,
        waiter: &Waiter,
        begun: Instant,
        error: LockError,
        deadline: Option<Instant>,
    ) -> Result<(), LockError> {
        let votes = error.votes().cloned().unwrap_or_default();
        let since = waiter.record_outage(begun, &votes);
        let waited_before = self.waiting_since.is_some_and(|waiting| waiting <= since);
        let until = since + waiter.outage_grace();
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        if !waited_before || !is_transient(&votes) {
            return Err(error);
        }
        // The pause comes first: a node may appear to be up for a moment after its connection has broken, and
        // a frozen node always appears to be up.
        let pause = self.backoff.get_or_insert_with(Backoff::new).pause();
        let ballot = waiter.ballot();
        let back = async {
            sleep(pause).await;
            ballot.quorum_recovered().await;
        };
        tokio::select! {
            biased;
            () = sleep_until(until) => Err(error),
            () = waiter.notified() => Ok(()),
            () = back => Ok(()),
        }
    }
}

/// Returns whether the nodes may answer soon. A missing permission, or a server that is configured twice,
/// does not change while a caller waits.
fn is_transient(votes: &Votes) -> bool {
    let lasting = votes.iter().filter(|(_, vote)| {
        matches!(vote, Some(Vote::Failed(NodeError::NotPermitted(_) | NodeError::SameServer(_))))
    });
    lasting.count() + quorum(votes.len()) <= votes.len()
}
