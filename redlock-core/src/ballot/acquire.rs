//! Acquires a lock: asks all nodes to set it, and counts their votes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::round::Round;
use super::tally::{Decision, Tally};
use super::{Attempt, Ballot, Lease, NodeRelease};
use crate::clock::Moment;
use crate::error::{LockError, NodeError, Vote};
use crate::fencing_token::FencingToken;
use crate::node::{Action, ReplyFuture};
use crate::validity;

/// A lock that a quorum of nodes has granted. Its lease is in its attempt.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The start of the lease, on the clock of the runtime's timers.
    pub(crate) begun: Instant,
    /// How long the lock was valid when it was granted.
    pub(crate) validity: Duration,
    /// The holder's fencing token, if the attempt is fenced.
    pub(crate) token: Option<FencingToken>,
    /// The number of nodes that had granted the lock when it was decided.
    pub(crate) granted: usize,
}

impl Ballot {
    /// Asks the nodes for the lock. If the attempt is fenced, also writes its number back to a majority.
    ///
    /// If the attempt is refused or the future is dropped, the nodes that may have set the lock are asked to
    /// remove it, in the background and over the connection that carried the acquisition (an abandoned
    /// attempt leaves nothing behind).
    pub(crate) async fn acquire(
        &self,
        attempt: &Arc<Attempt>,
        expire: Duration,
    ) -> Result<Grant, LockError> {
        // The clock was read before the first byte is sent, so the servers' leases begin later (every lock has
        // a deadline).
        let since = attempt.begun;
        // Armed before the first byte is sent (an abandoned attempt leaves nothing behind).
        let mut cleanup = CleanupGuard {
            attempt,
            expire,
            round: Round::new(self, attempt.is_fenced()),
            disarmed: false,
        };
        cleanup.round.send(|index, node| {
            let reply = node.call(attempt.acquire_op(expire));
            let vote = reply.as_ready().map(|reply| &reply.vote);
            if !matches!(vote, Some(Vote::Failed(_))) {
                attempt.record_asked(index);
            }
            reply
        });

        let max_time = validity::remaining(expire, Duration::ZERO);
        let decision = cleanup.round.decide(max_time).await;
        if decision != Decision::Agreed {
            return Err(self.refusal(decision, attempt, since, expire, &cleanup.round));
        }
        // The number is fixed now: a greater number in a later reply is not confirmed.
        let token = attempt.first_token(cleanup.round.tally.number());
        if let Some(token) = token
            // A single node has already stored the number in its own counter.
            && self.nodes.len() > 1
        {
            let remaining = validity::remaining(expire, self.clock.now().since(since));
            let votes = Some(&cleanup.round.tally);
            // Boxed, because the future would enlarge the futures of unfenced locks.
            Box::pin(self.confirm(attempt, token, expire, remaining, votes)).await?;
        }

        let granted = self.clock.now();
        let validity = validity::remaining(expire, granted.since(since));
        if validity.is_zero() {
            let late = Decision::OutOfTime;
            return Err(self.refusal(late, attempt, since, expire, &cleanup.round));
        }
        // The clean-up also waits for late grants, which are kept: the holder's release covers those nodes, too.
        cleanup.disarmed = true;
        *attempt.lease() = Lease::new(since, granted, expire);
        let granted = cleanup.round.tally.granted();
        Ok(Grant { begun: cleanup.round.begun, validity, token, granted })
    }

    /// Writes a number to a majority of the nodes that hold the lock, while validity is left. Every later
    /// majority then contains a node that counts on from this number.
    ///
    /// The maximum of a majority's counters is not enough by itself. Suppose three counters are at 0, 0 and
    /// 2: a holder that is granted by the last two nodes gets 3, and the next holder, granted by the first
    /// two nodes, gets 2.
    ///
    /// Nodes that refused the acquisition are not asked again: their votes stand.
    pub(crate) async fn confirm(
        &self,
        attempt: &Arc<Attempt>,
        token: FencingToken,
        expire: Duration,
        remaining: Duration,
        acquisition: Option<&Tally>,
    ) -> Result<(), LockError> {
        let mut round = Round::new(self, false);
        round.send(|index, node| {
            match acquisition.and_then(|acquisition| acquisition.vote(index)) {
                None | Some(Vote::Agreed) => {
                    node.call(attempt.op(Action::Confirm { number: token.number() }))
                }
                Some(refused) => ReplyFuture::ready(refused.clone()),
            }
        });
        let asked = self.clock.now();
        match round.decide(remaining).await {
            Decision::Agreed => Ok(()),
            // A quorum had granted the lock. Failed nodes, and not another holder, prevented the confirmation.
            Decision::Denied if !round.tally.is_refused() => {
                let (key, votes) = (attempt.key().clone(), round.votes());
                Err(LockError::Unavailable { key, votes })
            }
            decision => Err(self.refusal(decision, attempt, asked, expire, &round)),
        }
    }

    /// Returns why a round that began at `since` was not granted: its time is over, no quorum of nodes answered, a key is
    /// foreign, the votes are split, or another holder has the lock.
    fn refusal(
        &self,
        decision: Decision,
        attempt: &Attempt,
        since: Moment,
        expire: Duration,
        round: &Round<'_>,
    ) -> LockError {
        let (tally, votes) = (&round.tally, round.votes());
        if decision == Decision::OutOfTime && !tally.is_contended() {
            let (key, elapsed) = (attempt.key().clone(), self.clock.now().since(since));
            return LockError::TimedOut { key, elapsed, expire, votes };
        }
        if tally.is_unavailable() {
            return LockError::Unavailable { key: attempt.key().clone(), votes };
        }
        let key = attempt.spec().key_at(tally.refused_key()).clone();
        if tally.is_foreign() {
            return LockError::ForeignKey { key, votes };
        }
        attempt.met_marks.store(tally.takes_marks(), Ordering::SeqCst);
        // A key with nothing but marks refuses a plain acquisition, and names no holder.
        if tally.standing().is_split() {
            return LockError::Split { key, votes };
        }
        LockError::Contended {
            key,
            remaining: tally.remaining(),
            holder: tally.holder().cloned(),
            votes,
        }
    }
}

/// When dropped, releases the attempt on the nodes that may hold its lock, unless the guard is disarmed.
struct CleanupGuard<'a> {
    attempt: &'a Arc<Attempt>,
    expire: Duration,
    round: Round<'a>,
    disarmed: bool,
}

impl Drop for CleanupGuard<'_> {
    fn drop(&mut self) {
        if self.disarmed {
            return;
        }
        self.attempt.abandon();
        let (ballot, mut nodes) = (self.round.ballot, Vec::new());
        for (index, node) in ballot.nodes.iter().enumerate() {
            let acquiring = self.round.take_pending(index);
            let may_hold = || self.round.tally.vote(index).is_some_and(may_hold);
            if acquiring.is_some() || (self.attempt.was_asked(index) && may_hold()) {
                nodes.push(NodeRelease::new(node, self.attempt, acquiring));
            }
        }
        // A node's lease begins when the command arrives there. If the reply is still pending, the
        // command may arrive later than now.
        let until = ballot.clock.now().plus(self.expire);
        ballot.complete_release(self.attempt, until, nodes, |_| {});
    }
}

/// Returns whether a node that was asked, and gave this vote, may hold the lock for this attempt.
fn may_hold(vote: &Vote) -> bool {
    match vote {
        Vote::Agreed
        | Vote::Failed(
            // The node may or may not have executed the command.
            NodeError::ConnectionBroke(_)
            | NodeError::NoReply(_)
            | NodeError::UnexpectedReply
            // The node has set the lock, but the vote does not count.
            | NodeError::Restarted { .. }
            | NodeError::ClockStepped { .. }
            | NodeError::Promoted { .. }
            | NodeError::Disputed(_)
            | NodeError::Unproven(_),
        ) => true,
        // The node left the existing key alone, was not asked after all, or refused before it set the lock.
        Vote::Held { .. } | Vote::NotHeld | Vote::Foreign { .. } | Vote::Failed(_) => false,
    }
}
