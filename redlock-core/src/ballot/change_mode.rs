//! Turns a held exclusive lock into a shared one, and back.

use std::sync::Arc;
use std::time::Duration;

use super::round::Round;
use super::tally::Decision;
use super::{Attempt, Ballot, HeldLockRound};
use crate::error::{Vote, Votes};
use crate::lock::{LockSpec, Token, WriterMark};
use crate::node::{Action, Op};

/// The outcome of an upgrade.
#[derive(Debug)]
pub(crate) enum Upgrade {
    /// A quorum holds the exclusive lock.
    Upgraded,
    /// Others share the lock. `remaining` is the time until enough of them have ended.
    Refused { remaining: Option<Duration>, votes: Votes },
    /// So many nodes have lost the lock that no quorum can hold it any more.
    Lost(Votes),
    /// No quorum answered.
    Unavailable(Votes),
}

impl Upgrade {
    /// Returns whether a node may have granted the exclusive lock.
    pub(crate) fn may_be_exclusive(&self) -> bool {
        let is_no = |vote| matches!(vote, Some(&(Vote::Held { .. } | Vote::NotHeld)));
        match self {
            Self::Upgraded => true,
            Self::Refused { votes, .. } | Self::Lost(votes) | Self::Unavailable(votes) => {
                !votes.iter().all(|(_, vote)| is_no(vote))
            }
        }
    }
}

impl Ballot {
    /// Asks the nodes to share an exclusive lock, by the operation `downgrade`. `remaining` is the rest of its
    /// validity. If no quorum confirms it, returns the votes, and whether so many nodes have lost the lock that no quorum
    /// can hold it any more. Cancel safe: if the future is dropped, each node either shares the lock or leaves it
    /// exclusive.
    pub(crate) async fn downgrade(
        &self,
        downgrade: &Op,
        remaining: Duration,
    ) -> Result<(), (bool, Votes)> {
        let mut downgrading = HeldLockRound { ballot: self, round: Round::new(&self.nodes, false) };
        let round = &mut downgrading.round;
        round.send(&self.nodes, |_, node| node.call(downgrade.clone()));
        match round.decide(&self.nodes, self.limits(remaining)).await {
            Decision::Granted => Ok(()),
            Decision::Denied | Decision::OutOfTime => {
                Err((round.tally().is_refused(), round.votes(&self.nodes)))
            }
        }
    }

    /// Asks the nodes for the exclusive lock of a shared holder. `remaining` is the rest of its validity, and `lease` the
    /// rest of its lease. Cancel safe: if the future is dropped, each node either upgrades the lock or leaves it shared.
    pub(crate) async fn upgrade(
        &self,
        attempt: &Arc<Attempt>,
        remaining: Duration,
        lease: Duration,
    ) -> Upgrade {
        let mut upgrading = HeldLockRound { ballot: self, round: Round::new(&self.nodes, false) };
        let round = &mut upgrading.round;
        let upgrade = attempt.upgrade_op(lease);
        round.send(&self.nodes, |_, node| node.call(upgrade.clone()));
        let decision = round.decide(&self.nodes, self.limits(remaining)).await;
        let (tally, votes) = (round.tally(), round.votes(&self.nodes));
        let is_shared_by_others =
            (0..self.nodes.len()).any(|node| matches!(round.vote(node), Some(Vote::Held { .. })));
        match decision {
            Decision::Granted => Upgrade::Upgraded,
            Decision::Denied if tally.is_refused() && is_shared_by_others => {
                Upgrade::Refused { remaining: tally.remaining(), votes }
            }
            Decision::Denied if tally.is_refused() => Upgrade::Lost(votes),
            Decision::Denied | Decision::OutOfTime => Upgrade::Unavailable(votes),
        }
    }

    /// Removes the mark of a caller that gives up waiting for an exclusive lock, in the background. A mark that a node
    /// keeps nevertheless runs out by itself.
    pub(crate) fn withdraw_in_background(&self, spec: &LockSpec, mark: WriterMark) {
        for key in spec.queue_keys() {
            // No token holds the lock. A token of its own distinguishes the operation from those on the other keys.
            let token = Token::random(spec.dialect());
            let withdraw = Op::new(&spec.of_key(key), token, Action::Withdraw { mark });
            let mut round = Round::new(&self.nodes, false);
            round.send(&self.nodes, |_, node| node.call(withdraw.clone()));
            self.await_pending(&mut round);
        }
    }
}
