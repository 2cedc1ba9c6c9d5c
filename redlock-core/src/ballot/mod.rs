//! The Redlock algorithm: asks all nodes at once, decides early, counts the votes and deducts the elapsed
//! time.
//!
//! It follows Antirez, "Distributed locks with Redis" (the Redis documentation), with these differences: all
//! nodes are asked at once instead of one after another, the round ends with the vote that decides it, and
//! every attempt has its own token. This module knows nothing about Redis and nothing about the kinds of
//! locks.

mod acquire;
pub(crate) mod attempt;
mod downgrade;
mod fan_out;
mod granted_lease;
mod round;
mod round_timer;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::clock::{Clock, Moment};
use crate::error::{Vote, Votes};
use crate::home::Home;
use crate::node::{Node, NodeStatus, ReplyFuture, StatusReceiver};
use crate::quorum::quorum;
use crate::{telemetry, validity};

pub(crate) use acquire::{Grant, Refusal};
pub(crate) use attempt::{Attempt, Enquiry, MinHold};
pub(crate) use fan_out::FanOut;
pub(crate) use granted_lease::GrantedLease;
use round::{Round, RoundLimits};
use tally::Decision;

/// The nodes that vote, and the settings of the vote.
#[derive(Debug, Clone)]
pub(crate) struct Ballot {
    pub(crate) nodes: Arc<[Arc<dyn Node>]>,
    pub(crate) statuses: Arc<[StatusReceiver]>,
    /// How long a node may be silent before it counts as failed.
    pub(crate) node_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cleanup: Arc<dyn Cleanup>,
    pub(crate) home: Arc<Home>,
}

/// Finishes the work that a ballot still has in flight when it is decided, or when its future is dropped.
pub(crate) trait Cleanup: std::fmt::Debug + Send + Sync + 'static {
    /// Waits for replies that no longer affect the decision. If the reply future of a command is dropped, the
    /// command may never be sent, and the node would not have the lock.
    fn await_replies(&self, replies: FanOut);

    /// Sets the lock again on nodes that have lost it, unless the attempt is abandoned.
    fn restore(&self, request: RestoreRequest);

    /// Releases the attempt on the nodes that may hold its lock. Repeats the release until each node has
    /// confirmed it, or the lease has run out there.
    fn release(&self, release: BackgroundRelease);
}

/// A request to set a lock again on nodes that may not have it: they were restarted, or could not be reached
/// when the lock was acquired. A quorum has confirmed an extension of the lock.
#[derive(Debug)]
pub(crate) struct RestoreRequest {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) expire: Duration,
    pub(crate) nodes: Arc<[Arc<dyn Node>]>,
    /// The indexes of the nodes that have reported that they do not hold the lock.
    pub(crate) nodes_without_lock: Vec<usize>,
    /// The replies that are still pending.
    pub(crate) replies: FanOut,
}

/// The release of an attempt whose lock some nodes may still hold.
#[derive(Debug)]
pub(crate) struct BackgroundRelease {
    pub(crate) attempt: Arc<Attempt>,
    /// The time at which the lease has run out on every node.
    pub(crate) until: Moment,
    /// The nodes that may hold the lock, each with the command that is still in flight.
    pub(crate) nodes: Vec<(Arc<dyn Node>, InFlight)>,
}

/// The command that is still in flight to a node.
#[derive(Debug)]
pub(crate) enum InFlight {
    /// No command. The release still has to be sent.
    None,
    /// The acquisition. The release still has to be sent.
    Acquiring(ReplyFuture),
    /// The release.
    Releasing(ReplyFuture),
}

/// The outcome of an extension.
#[derive(Debug)]
pub(crate) enum Extension {
    /// A quorum extended the lease, which begins at this moment.
    Extended(Moment),
    /// So many nodes have lost the lock that no quorum can hold it any more.
    Lost(Votes),
    /// No quorum confirmed the extension, but the denials alone do not rule a quorum out.
    Unavailable(Votes),
}

/// The outcome of a release.
#[derive(Debug)]
pub(crate) enum Release {
    /// A quorum removed the lock. `subscribers` is the number of subscribers that were notified, on the node
    /// with the most; `None` if no node knows it.
    Released { subscribers: Option<usize> },
    /// So many nodes had lost the lock before the release that no quorum held it.
    Expired(Votes),
    /// No quorum confirmed the release.
    Unavailable(Votes),
}

impl Ballot {
    pub(crate) fn new(
        nodes: Vec<Arc<dyn Node>>,
        node_timeout: Duration,
        clock: Arc<dyn Clock>,
        cleanup: Arc<dyn Cleanup>,
        home: Arc<Home>,
    ) -> Self {
        let statuses = nodes.iter().map(|node| node.status()).collect();
        Self { nodes: nodes.into(), statuses, node_timeout, clock, cleanup, home }
    }

    /// Asks the nodes to extend the attempt's lease. Cancel safe: if the future is dropped, each node either
    /// extends the lease or leaves it unchanged.
    pub(crate) async fn extend(&self, attempt: &Arc<Attempt>, expire: Duration) -> Extension {
        let since = self.clock.now();
        let mut extending = HeldLockRound { ballot: self, round: Round::new(&self.nodes, false) };
        let round = &mut extending.round;
        round.send(&self.nodes, |_, node| node.call(attempt.extend_op(expire)));
        // After this time the new lease would be over.
        let max_time = validity::remaining(expire, Duration::ZERO);
        let decision = round.decide(&self.nodes, self.limits(max_time)).await;
        match decision {
            Decision::Granted => {
                telemetry::extension("extended");
                self.restore(attempt, expire, round);
                Extension::Extended(since)
            }
            Decision::Denied if round.tally().is_refused() => {
                telemetry::extension("lost");
                Extension::Lost(round.votes(&self.nodes))
            }
            Decision::Denied | Decision::OutOfTime => {
                telemetry::extension("unavailable");
                Extension::Unavailable(round.votes(&self.nodes))
            }
        }
    }

    /// Asks the nodes to release the lock, whose lease has run out on every node at `until`. `now` is the time at
    /// which its holding ended; the round lasts at most from then to `until`. If the future is
    /// dropped, the release continues in the background. A lock with [`MinHold::UntilExpiry`] is only marked
    /// as abandoned: the nodes are not asked.
    pub(crate) async fn release(
        &self,
        attempt: Arc<Attempt>,
        now: Moment,
        until: Moment,
    ) -> Release {
        attempt.abandon();
        if attempt.is_kept_until_expiry() {
            return Release::Released { subscribers: Some(0) };
        }
        let round = Round::new(&self.nodes, false);
        let mut releasing = ReleaseGuard { ballot: self, attempt, until, round };
        let ReleaseGuard { attempt, round, .. } = &mut releasing;
        round.send(&self.nodes, |index, node| {
            if attempt.was_asked(index) {
                node.call(attempt.release_op())
            } else {
                ReplyFuture::ready(Vote::NotHeld)
            }
        });
        // After this time the lease has run out on every node.
        let max_time = now.time_until(until).max(self.node_timeout);
        let decision = releasing.round.decide(&self.nodes, self.limits(max_time)).await;
        match decision {
            Decision::Granted => Release::Released { subscribers: releasing.round.subscribers() },
            Decision::Denied if releasing.round.tally().is_refused() => {
                Release::Expired(releasing.round.votes(&self.nodes))
            }
            Decision::Denied | Decision::OutOfTime => {
                Release::Unavailable(releasing.round.votes(&self.nodes))
            }
        }
    }

    fn limits(&self, max_time: Duration) -> RoundLimits<'_> {
        RoundLimits { home: &self.home, max_silence: self.node_timeout, max_time }
    }

    /// Returns whether the nodes' statuses report a quorum of nodes as up.
    pub(crate) fn has_quorum(&self) -> bool {
        let up = self.statuses.iter().filter(|status| status.get().is_up()).count();
        up >= quorum(self.nodes.len())
    }

    /// Resolves as soon as the nodes' statuses report a quorum of nodes as up.
    pub(crate) async fn quorum_recovered(&self) {
        let recovered: FuturesUnordered<_> =
            self.statuses.iter().map(|status| status.wait_for(NodeStatus::is_up)).collect();
        recovered.take(quorum(self.nodes.len())).for_each(|_| async {}).await;
    }

    /// Releases the attempt in the background, on every node that was asked to set the lock. The rules are
    /// those of [`release`](Self::release).
    pub(crate) fn release_in_background(&self, attempt: Arc<Attempt>, until: Moment) {
        attempt.abandon();
        if attempt.is_kept_until_expiry() {
            return;
        }
        let asked = self.nodes.iter().enumerate().filter(|(index, _)| attempt.was_asked(*index));
        let nodes = asked.map(|(_, node)| (Arc::clone(node), InFlight::None)).collect();
        self.cleanup.release(BackgroundRelease { attempt, until, nodes });
    }

    fn restore(&self, attempt: &Arc<Attempt>, expire: Duration, round: &mut Round) {
        let nodes_without_lock: Vec<usize> = (0..self.nodes.len())
            .filter(|index| matches!(round.vote(*index), Some(Vote::NotHeld)))
            .collect();
        let replies = round.take_all_pending();
        if !nodes_without_lock.is_empty() || replies.is_some() {
            let replies = replies.unwrap_or_default();
            let (attempt, nodes) = (Arc::clone(attempt), Arc::clone(&self.nodes));
            self.cleanup.restore(RestoreRequest {
                attempt,
                expire,
                nodes,
                nodes_without_lock,
                replies,
            });
        }
    }

    fn await_pending(&self, round: &mut Round) {
        if let Some(rest) = round.take_all_pending() {
            self.cleanup.await_replies(rest);
        }
    }
}

/// A round about a held lock, such as an extension. When it is decided or dropped, the clean-up waits for the replies
/// that are still pending. A release may follow, and a node that does not keep the order of commands by itself must
/// complete the extension before the release.
struct HeldLockRound<'a> {
    ballot: &'a Ballot,
    round: Round,
}

impl Drop for HeldLockRound<'_> {
    fn drop(&mut self) {
        self.ballot.await_pending(&mut self.round);
    }
}

/// Hands the unconfirmed part of a release to the clean-up when the release is decided or dropped.
struct ReleaseGuard<'a> {
    ballot: &'a Ballot,
    attempt: Arc<Attempt>,
    until: Moment,
    round: Round,
}

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        let mut nodes = Vec::new();
        for (index, node) in self.ballot.nodes.iter().enumerate() {
            let in_flight = match (self.round.take_pending(index), self.round.vote(index)) {
                (Some(reply), _) => InFlight::Releasing(reply),
                (None, Some(Vote::Failed(_)) | None) => InFlight::None,
                (None, Some(_)) => continue,
            };
            nodes.push((Arc::clone(node), in_flight));
        }
        if !nodes.is_empty() {
            let attempt = Arc::clone(&self.attempt);
            self.ballot.cleanup.release(BackgroundRelease { attempt, until: self.until, nodes });
        }
    }
}

#[cfg(test)]
mod cleanup_tests;
#[cfg(test)]
mod fencing_tests;
#[cfg(test)]
pub(crate) mod tests;
