//! Downgrades of held locks, and marks that are withdrawn.

use std::time::Duration;

use super::round::Round;
use super::tally::Decision;
use super::{Ballot, HeldLockRound};
use crate::error::Votes;
use crate::lock::{LockSpec, Mark, Token};
use crate::node::{Action, Op};

impl Ballot {
    /// Asks the nodes to execute a downgrade. `remaining` is the rest of the validity. If no quorum confirms it, returns the
    /// votes, and whether so many nodes have lost the lock that no quorum can hold it any more. Cancel safe: if the future
    /// is dropped, each node either executes the downgrade or does not.
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

    /// Removes the mark of a caller that gives up waiting for an exclusive lock, in the background. A mark that a node
    /// keeps nevertheless runs out by itself.
    pub(crate) fn withdraw_in_background(&self, spec: &LockSpec, mark: Mark) {
        // No token holds the lock.
        let token = Token::random(spec.dialect());
        let withdraw = Op::new(spec, token, Action::Withdraw { mark });
        let mut round = Round::new(&self.nodes, false);
        round.send(&self.nodes, |_, node| node.call(withdraw.clone()));
        self.await_pending(&mut round);
    }
}
