//! The vote on who holds a lock.

use std::sync::Arc;
use std::time::Duration;

use super::round::Round;
use super::tally::{Decision, Tally};
use super::{AbandonedAttempt, Attempt, Ballot, InFlight};
use crate::clock::Moment;
use crate::error::{NodeError, Vote, Votes};
use crate::fencing_token::FencingToken;
use crate::node::ReplyFuture;
use crate::validity;

/// What a ballot granted.
#[derive(Debug)]
pub(crate) struct Grant {
    /// What the lease counts from.
    pub(crate) since: Moment,
    /// When it was decided.
    pub(crate) decided: Moment,
    /// The holder's number, if the attempt is to be numbered.
    pub(crate) token: Option<FencingToken>,
}

/// Why a ballot granted nothing.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Another holds the lock.
    Contended { remaining: Option<Duration>, votes: Votes },
    /// No quorum of nodes answered.
    Unavailable(Votes),
    /// The lease was over before a quorum had granted it.
    TimedOut { elapsed: Duration, votes: Votes },
    /// Keys that are no locks prevent a quorum.
    Foreign(Votes),
}

impl Ballot {
    /// Asks the nodes for the lock, and writes its number back to a majority where it has one.
    ///
    /// Dropped or refused, it leaves nothing behind: the nodes that may have set the lock are asked
    /// to remove it, in the background and on the way that the question took (invariant 6).
    pub(crate) async fn acquire(
        &self,
        attempt: &Arc<Attempt>,
        expire: Duration,
    ) -> Result<Grant, Refusal> {
        // Before the first byte (invariant 4): the servers' leases begin later.
        let since = self.clock.now();
        let round = Round::new(&self.nodes).fenced(attempt.is_fenced());
        // Armed before the first byte (invariant 6).
        let mut cleanup = CleanupGuard { ballot: self, attempt, expire, round, kept: false };
        cleanup.round.ask(&self.nodes, |index, node| {
            let reply = node.call(attempt.acquire(expire));
            let vote = reply.as_ready().map(|reply| &reply.vote);
            if !matches!(vote, Some(Vote::Failed(_))) {
                attempt.note_asked(index);
            }
            reply
        });

        let limits = self.limits(validity::remaining(expire, Duration::ZERO));
        match cleanup.round.decide(&self.nodes, limits).await {
            Decision::Granted => {}
            Decision::Denied => return Err(self.refusal(&cleanup.round)),
            Decision::OutOfTime => return Err(self.timed_out(since, &cleanup.round)),
        }
        // The number as it is now: what later replies add is not confirmed.
        let token = attempt.first_token(cleanup.round.number());
        if let Some(token) = token
            // The only node has counted it itself.
            && self.nodes.len() > 1
        {
            let remaining = validity::remaining(expire, self.clock.now().since(since));
            self.confirm(attempt, token, remaining, Some(cleanup.round.tally())).await?;
        }

        let decided = self.clock.now();
        if validity::remaining(expire, decided.since(since)).is_zero() {
            return Err(self.timed_out(since, &cleanup.round));
        }
        cleanup.disarm();
        Ok(Grant { since, decided, token })
    }

    /// Writes a number to a majority of nodes that hold the lock, as long as validity is left, so that
    /// every later majority has a node that counts on from there. The maximum of what a majority has
    /// counted would not do: of counters at 0, 0 and 2 one holder gets 3 from the last two, and the next
    /// one 2 from the first two.
    ///
    /// Nodes that have refused the acquisition are not asked: what they said stands.
    pub(crate) async fn confirm(
        &self,
        attempt: &Arc<Attempt>,
        token: FencingToken,
        remaining: Duration,
        acquisition: Option<&Tally>,
    ) -> Result<(), Refusal> {
        let mut round = Round::new(&self.nodes);
        round.ask(&self.nodes, |index, node| {
            match acquisition.and_then(|acquisition| acquisition.vote(index)) {
                None | Some(Vote::Granted) => node.call(attempt.confirm(token.number())),
                Some(refused) => ReplyFuture::ready(refused.clone()),
            }
        });
        let asked = self.clock.now();
        let confirmed = match round.decide(&self.nodes, self.limits(remaining)).await {
            Decision::Granted => Ok(()),
            Decision::OutOfTime => Err(self.timed_out(asked, &round)),
            Decision::Denied if round.tally().said_no() => Err(self.denial(&round)),
            // Nobody else needs to hold it for that.
            Decision::Denied => Err(Refusal::Unavailable(round.votes(&self.nodes))),
        };
        self.await_rest(&mut round);
        confirmed
    }

    fn timed_out(&self, since: Moment, round: &Round) -> Refusal {
        let elapsed = self.clock.now().since(since);
        Refusal::TimedOut { elapsed, votes: round.votes(&self.nodes) }
    }

    /// Why a round was rejected.
    fn refusal(&self, round: &Round) -> Refusal {
        if round.tally().unavailable() {
            Refusal::Unavailable(round.votes(&self.nodes))
        } else {
            self.denial(round)
        }
    }

    /// What the nodes that said no have seen.
    fn denial(&self, round: &Round) -> Refusal {
        let (tally, votes) = (round.tally(), round.votes(&self.nodes));
        if tally.foreign() {
            Refusal::Foreign(votes)
        } else {
            Refusal::Contended { remaining: tally.remaining(), votes }
        }
    }
}

/// Gives back what an attempt got, unless it is disarmed.
struct CleanupGuard<'a> {
    ballot: &'a Ballot,
    attempt: &'a Arc<Attempt>,
    expire: Duration,
    round: Round,
    kept: bool,
}

impl CleanupGuard<'_> {
    fn disarm(mut self) {
        self.kept = true;
        // Late grants are welcome: they are released with the others.
        self.ballot.await_rest(&mut self.round);
    }
}

impl Drop for CleanupGuard<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        self.attempt.abandon();
        let mut nodes = Vec::new();
        for (index, node) in self.ballot.nodes.iter().enumerate() {
            let in_flight = match self.round.take_pending(index) {
                Some(answer) => InFlight::Acquiring(answer),
                None if self.attempt.was_asked(index)
                    && self.round.vote(index).is_some_and(may_hold) =>
                {
                    InFlight::Nothing
                }
                None => continue,
            };
            nodes.push((Arc::clone(node), in_flight));
        }
        if !nodes.is_empty() {
            // The lease on a node begins when the question gets there, which for an answer that is
            // under way may be later than now.
            let until = self.ballot.clock.now().after(self.expire);
            let attempt = Arc::clone(self.attempt);
            self.ballot.cleanup.release(AbandonedAttempt { attempt, until, nodes });
        }
    }
}

/// Whether a node that was asked and voted so may have the lock set for us.
fn may_hold(vote: &Vote) -> bool {
    match vote {
        Vote::Granted
        | Vote::Failed(
            // What came of the question is not known.
            NodeError::ConnectionBroke(_)
            | NodeError::NoAnswer(_)
            | NodeError::NotUnderstood
            // Set, but it does not count.
            | NodeError::Restarted { .. }
            | NodeError::ClockStepped { .. },
        ) => true,
        // It has left what was there as it was, was not asked after all, or has refused before it set
        // anything.
        Vote::Held { .. } | Vote::Gone | Vote::Foreign { .. } | Vote::Failed(_) => false,
    }
}
