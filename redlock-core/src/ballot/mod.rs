//! The Redlock algorithm: ask all nodes at once, decide early, count, deduct what the time took.
//!
//! After Antirez, "Distributed locks with Redis" (the Redis documentation), with these differences:
//! nodes are asked at once and not one after another, the decision falls with the vote that decides
//! it, and every attempt has a token of its own. Knows nothing of Redis and nothing of what kind of
//! lock it serves.

mod acquire;
pub(crate) mod attempt;
mod fan_out;
mod round;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::clock::{Clock, Moment};
use crate::error::{Vote, Votes};
use crate::node::{Node, NodeStatus, ReplyFuture, StatusReceiver};
use crate::quorum::quorum;
use crate::{telemetry, validity};

pub(crate) use acquire::{Grant, Refusal};
pub(crate) use attempt::{Attempt, MinHold};
pub(crate) use fan_out::FanOut;
use round::{Round, RoundLimits};
use tally::Decision;

/// The nodes that vote, and the rules they vote by.
#[derive(Debug, Clone)]
pub(crate) struct Ballot {
    pub(crate) nodes: Arc<[Arc<dyn Node>]>,
    pub(crate) statuses: Arc<[StatusReceiver]>,
    /// How long a node may be silent before it counts as failed.
    pub(crate) node_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cleanup: Arc<dyn Cleanup>,
}

/// Looks after what a ballot leaves under way when it is decided, or when its future is dropped.
pub(crate) trait Cleanup: std::fmt::Debug + Send + Sync + 'static {
    /// Waits for answers that no decision depends on any more: a command whose reply nobody can receive
    /// may never be sent, and the node would not have the lock.
    fn await_answers(&self, answers: FanOut);

    /// Sets the lock again on nodes that have forgotten it, as long as it is not given up.
    fn restore(&self, missing: MissingOn);

    /// Releases the attempt on the nodes that may hold it, again and again until each has confirmed
    /// it or the lease has run out there.
    fn release(&self, abandoned: AbandonedAttempt);
}

/// An extension that a quorum has confirmed, although some nodes may have forgotten the lock: they
/// were restarted, or could not be reached when it was acquired.
#[derive(Debug)]
pub(crate) struct MissingOn {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) expire: Duration,
    pub(crate) nodes: Arc<[Arc<dyn Node>]>,
    /// Those that have said so.
    pub(crate) gone: Vec<usize>,
    /// Those that have not answered yet.
    pub(crate) answers: FanOut,
}

/// An abandoned attempt that some nodes may still hold.
#[derive(Debug)]
pub(crate) struct AbandonedAttempt {
    pub(crate) attempt: Arc<Attempt>,
    /// When the attempt runs out by itself on every node.
    pub(crate) until: Moment,
    /// The nodes that may hold it, each with the command that is still in flight.
    pub(crate) nodes: Vec<(Arc<dyn Node>, InFlight)>,
}

/// What a node is still busy with.
#[derive(Debug)]
pub(crate) enum InFlight {
    /// Nothing; it has to be asked to release.
    Nothing,
    /// Setting the lock; it has to be asked to release.
    Acquiring(ReplyFuture),
    /// Releasing it.
    Releasing(ReplyFuture),
}

/// How an extension went.
#[derive(Debug)]
pub(crate) enum Extension {
    /// A quorum extended the lease; it counts from this moment.
    Extended { since: Moment },
    /// So many nodes do not have the lock any more that there can be no quorum.
    Lost(Votes),
    /// No quorum confirmed it, and none denied it.
    Unavailable(Votes),
}

/// How a release went.
#[derive(Debug)]
pub(crate) enum Release {
    /// A quorum removed the lock, and notified so many subscribers, on the node with the most.
    Released { listeners: usize },
    /// So many nodes did not have it any more that no quorum held it.
    Expired(Votes),
    /// No quorum confirmed it.
    Unavailable(Votes),
}

impl Ballot {
    pub(crate) fn new(
        nodes: Vec<Arc<dyn Node>>,
        node_timeout: Duration,
        clock: Arc<dyn Clock>,
        cleanup: Arc<dyn Cleanup>,
    ) -> Self {
        let statuses = nodes.iter().map(|node| node.status()).collect();
        Self { nodes: nodes.into(), statuses, node_timeout, clock, cleanup }
    }

    /// Asks the nodes to extend the attempt's lease. Cancel safe: dropping it leaves the lease as it
    /// is or extended.
    pub(crate) async fn extend(&self, attempt: &Arc<Attempt>, expire: Duration) -> Extension {
        let since = self.clock.now();
        let mut extending = Extending { ballot: self, round: Round::new(&self.nodes) };
        let round = &mut extending.round;
        round.ask(&self.nodes, |_, node| node.call(attempt.extend(expire)));
        // Later than this, the new lease would be over.
        let at_most = validity::remaining(expire, Duration::ZERO);
        let decision = round.decide(&self.nodes, self.limits(at_most)).await;
        match decision {
            Decision::Granted => {
                telemetry::extension("extended");
                self.restore(attempt, expire, round);
                Extension::Extended { since }
            }
            Decision::Denied if round.tally().said_no() => {
                telemetry::extension("lost");
                Extension::Lost(round.votes(&self.nodes))
            }
            Decision::Denied | Decision::OutOfTime => {
                telemetry::extension("unavailable");
                Extension::Unavailable(round.votes(&self.nodes))
            }
        }
    }

    /// Asks the nodes to release the lock, which runs out by itself at `until`. Dropping it moves
    /// what is still to be done to the background. A lock that stays until then is only given up.
    pub(crate) async fn release(&self, attempt: Arc<Attempt>, until: Moment) -> Release {
        attempt.abandon();
        if attempt.stays_until_expiry() {
            return Release::Released { listeners: 0 };
        }
        let mut round = Round::new(&self.nodes);
        round.ask(&self.nodes, |index, node| {
            if attempt.was_asked(index) {
                node.call(attempt.release())
            } else {
                ReplyFuture::ready(Vote::Gone)
            }
        });
        let mut releasing = Releasing { ballot: self, attempt, until, round };
        // Later than this, the lock has run out on every node.
        let at_most = self.clock.now().until(until).max(self.node_timeout);
        let decision = releasing.round.decide(&self.nodes, self.limits(at_most)).await;
        match decision {
            Decision::Granted => {
                let listeners = releasing.round.listeners().unwrap_or_default();
                Release::Released { listeners }
            }
            Decision::Denied if releasing.round.tally().said_no() => {
                Release::Expired(releasing.round.votes(&self.nodes))
            }
            Decision::Denied | Decision::OutOfTime => {
                Release::Unavailable(releasing.round.votes(&self.nodes))
            }
        }
    }

    fn limits(&self, at_most: Duration) -> RoundLimits {
        RoundLimits { silence: self.node_timeout, at_most }
    }

    /// Whether a quorum of nodes can be asked now, as far as is known.
    pub(crate) fn has_quorum(&self) -> bool {
        let up = self.statuses.iter().filter(|status| status.get().is_up()).count();
        up >= quorum(self.nodes.len())
    }

    /// Resolves when a quorum of nodes can be asked (again), as far as is known.
    pub(crate) async fn quorum_recovered(&self) {
        let recovered: FuturesUnordered<_> =
            self.statuses.iter().map(|status| status.wait_for(NodeStatus::is_up)).collect();
        recovered.take(quorum(self.nodes.len())).for_each(|_| async {}).await;
    }

    /// Releases the attempt on all nodes without waiting for it, as [`release`](Self::release) does.
    pub(crate) fn release_in_background(&self, attempt: Arc<Attempt>, until: Moment) {
        attempt.abandon();
        if attempt.stays_until_expiry() {
            return;
        }
        let asked = self.nodes.iter().enumerate().filter(|(index, _)| attempt.was_asked(*index));
        let nodes = asked.map(|(_, node)| (Arc::clone(node), InFlight::Nothing)).collect();
        self.cleanup.release(AbandonedAttempt { attempt, until, nodes });
    }

    fn restore(&self, attempt: &Arc<Attempt>, expire: Duration, round: &mut Round) {
        let gone: Vec<usize> = (0..self.nodes.len())
            .filter(|index| matches!(round.vote(*index), Some(Vote::Gone)))
            .collect();
        let answers = round.take_rest();
        if !gone.is_empty() || answers.is_some() {
            let answers = answers.unwrap_or_default();
            let (attempt, nodes) = (Arc::clone(attempt), Arc::clone(&self.nodes));
            self.cleanup.restore(MissingOn { attempt, expire, nodes, gone, answers });
        }
    }

    fn await_rest(&self, round: &mut Round) {
        if let Some(rest) = round.take_rest() {
            self.cleanup.await_answers(rest);
        }
    }
}

/// Awaits the replies that are missing when an extension is decided or dropped. A release may follow, and a
/// node that does not keep the order by itself has to wait for the extension's reply before it.
struct Extending<'a> {
    ballot: &'a Ballot,
    round: Round,
}

impl Drop for Extending<'_> {
    fn drop(&mut self) {
        self.ballot.await_rest(&mut self.round);
    }
}

/// Hands over what is left of a release when it is decided or dropped.
struct Releasing<'a> {
    ballot: &'a Ballot,
    attempt: Arc<Attempt>,
    until: Moment,
    round: Round,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        let mut nodes = Vec::new();
        for (index, node) in self.ballot.nodes.iter().enumerate() {
            let in_flight = match (self.round.take_pending(index), self.round.vote(index)) {
                (Some(answer), _) => InFlight::Releasing(answer),
                (None, Some(Vote::Failed(_)) | None) => InFlight::Nothing,
                (None, Some(_)) => continue,
            };
            nodes.push((Arc::clone(node), in_flight));
        }
        if !nodes.is_empty() {
            let attempt = Arc::clone(&self.attempt);
            self.ballot.cleanup.release(AbandonedAttempt { attempt, until: self.until, nodes });
        }
    }
}

#[cfg(test)]
mod cleanup_tests;
#[cfg(test)]
mod fencing_tests;
#[cfg(test)]
pub(crate) mod tests;
