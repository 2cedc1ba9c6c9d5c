//! The Redlock algorithm: asks all nodes at once, decides early, counts the votes and deducts the elapsed
//! time.
//!
//! It follows Antirez, "Distributed locks with Redis" (the Redis documentation), with these differences: all
//! nodes are asked at once instead of one after another, the round ends with the vote that decides it, and
//! every attempt has its own token. This module knows nothing about Redis and nothing about the kinds of
//! locks.
//!
//! # Invariants
//!
//! **Only the owner releases.** A release compares the token and deletes, in one step. The release of an expired holder
//! never removes the lock of the next holder, and reports the loss.
//!
//! Tests that fail without it, among others: `a_late_release_reports_the_loss_and_keeps_the_next_holders_lock`,
//! `a_release_never_removes_the_lock_of_the_next_holder`.
//!
//! **A fresh token for every attempt.** A token is never used for a second attempt: a late grant of the first would
//! count for the second.
//!
//! Tests that fail without it, among others: `an_attempt_has_a_token_of_its_own`, `no_two_tokens_are_the_same`,
//! `fresh_tokens_and_compare_and_delete_are_needed_when_clients_retry`.
//!
//! **Decide at quorum.** The quorum counts the configured nodes. A ballot grants at N/2 + 1 grants, and refuses when a
//! quorum is impossible. Refusals that name different holders do not decide: the votes may be split. A slow node delays
//! a caller only where its vote decides. There are two cases: no holder has a quorum by the other votes; or only
//! refusals, failures and foreign keys together prevent the quorum.
//!
//! Tests that fail without it, among others: `a_quorum_grants_without_waiting_for_the_others`,
//! `a_quorum_refuses_without_waiting_for_the_others`, `a_ballot_of_any_size_grants_only_with_a_majority`,
//! `refusals_because_of_different_holders_wait_for_the_other_votes`, `a_node_that_does_not_reply_counts_as_failed`.
//!
//! **An abandoned attempt leaves nothing behind.** Clean-up is armed before the first byte is sent, and covers every
//! node that was asked. It uses the connection of the acquisition, because a second connection may overtake it.
//!
//! Tests that fail without it, among others: `an_attempt_that_is_dropped_at_any_poll_leaves_nothing_behind`,
//! `a_clean_up_does_not_overtake_the_command_of_a_task_without_budget`,
//! `a_release_goes_to_the_master_of_its_acquisition_and_to_the_new_owner`,
//! `a_set_that_arrives_after_its_attempt_was_abandoned_leaves_no_key`, `tests/cluster/links.rs`,
//! `tests/locks/cancellation.rs`.

mod acquire;
pub(crate) mod attempt;
mod cleanup;
pub(crate) mod last_extension;
mod round;
mod stand;
mod standing;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use crate::clock::{Clock, Moment};
use crate::counters::Counters;
use crate::error::{HoldError, LossCause, LostError, NodeError, ReleaseError, Vote, Votes};
use crate::home::Home;
use crate::lock::{LockSpec, Mark, Token};
use crate::log_limit::LogLimit;
use crate::node::{Action, Node, NodeStatus, Op, ReplyFuture, StatusReceiver};
use crate::quorum::quorum;
use crate::{telemetry, validity};

pub(crate) use acquire::Grant;
pub(crate) use attempt::{Attempt, Lease};
use cleanup::NodeRelease;
use round::Round;
pub(crate) use standing::Standing;
use tally::Decision;

/// The nodes that vote, and the settings of the vote.
#[derive(Debug, Clone)]
pub(crate) struct Ballot {
    pub(crate) nodes: Arc<[Arc<dyn Node>]>,
    pub(crate) statuses: Arc<[StatusReceiver]>,
    /// How long a node may be silent before it counts as failed.
    pub(crate) node_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    home: Arc<Home>,
    log_limit: Arc<LogLimit>,
}

impl Ballot {
    pub(crate) fn new(
        nodes: Vec<Arc<dyn Node>>,
        node_timeout: Duration,
        clock: Arc<dyn Clock>,
        home: Arc<Home>,
    ) -> Self {
        let statuses = nodes.iter().map(|node| node.status()).collect();
        let log_limit = Arc::new(LogLimit::new(Arc::clone(&clock)));
        Self { nodes: nodes.into(), statuses, node_timeout, clock, home, log_limit }
    }

    /// Asks the nodes to extend the attempt's lease. Returns when the extended lease begins. Cancel safe: if the future is
    /// dropped, each node either extends the lease or leaves it unchanged.
    pub(crate) async fn extend(
        &self,
        attempt: &Arc<Attempt>,
        expire: Duration,
    ) -> Result<Moment, HoldError> {
        // After this time the new lease would be over.
        let max_time = validity::remaining(expire, Duration::ZERO);
        loop {
            let (since, op) = (self.clock.now(), attempt.op(Action::Extend { lease: expire }));
            let mut round = Round::new(self, false);
            let (outcome, extended) = match round.change(attempt, &op, max_time).await {
                Ok(()) => {
                    round.restore(attempt, expire);
                    ("extended", Ok(since))
                }
                // Nodes deny an extension of the exclusive lock that a downgrade has overtaken. After a release, an
                // extension would prolong a lock that stays for its minimum hold time.
                Err(_) if attempt.spec().mode() != op.spec.mode() && !attempt.is_abandoned() => {
                    continue;
                }
                Err(lost @ HoldError::Lost(_)) => ("lost", Err(lost)),
                Err(error) => ("unavailable", Err(error)),
            };
            telemetry::extension(outcome, 1);
            let Counters { extended: confirmed, not_extended, .. } = &*self.home.counters;
            if extended.is_ok() { confirmed } else { not_extended }.increment();
            return extended;
        }
    }

    /// Asks the nodes to release the lock, whose lease has run out on every node at `until`. `now` is the time at
    /// which its holding ended; the round lasts at most from then to `until`. If the future is
    /// dropped, the release continues in the background. A lock with [`MinHold::UntilExpiry`](crate::options::MinHold::UntilExpiry) is only marked
    /// as abandoned: the nodes are not asked.
    ///
    /// Returns the number of subscribers that were notified, on the node with the most; `None` if no node knows it.
    pub(crate) async fn release(
        &self,
        attempt: Arc<Attempt>,
        now: Moment,
        until: Moment,
    ) -> Result<Option<usize>, ReleaseError> {
        attempt.abandon();
        if attempt.is_kept_until_expiry() {
            return Ok(Some(0));
        }
        let mut releasing = ReleaseGuard { attempt, until, round: Round::new(self, false) };
        let ReleaseGuard { attempt, round, .. } = &mut releasing;
        round.send(|index, node| {
            if attempt.was_asked(index) {
                node.call(attempt.release_op())
            } else {
                ReplyFuture::ready(Vote::NotHeld)
            }
        });
        // After this time the lease has run out on every node.
        let max_time = now.time_until(until).max(self.node_timeout);
        let decision = round.decide(max_time).await;
        if decision == Decision::Agreed {
            return Ok(round.tally.subscribers());
        }
        let (key, votes) = (attempt.key().clone(), round.votes());
        Err(if decision == Decision::Denied && round.tally.is_refused() {
            ReleaseError::Lost(LostError::new(key, LossCause::NotOnNodes, votes))
        } else {
            ReleaseError::Unavailable { key, votes }
        })
    }

    /// Asks the nodes to execute the attempt's downgrade. `remaining` is the rest of the validity. Cancel safe: if the future
    /// is dropped, each node either executes the downgrade or does not.
    pub(crate) async fn downgrade(
        &self,
        attempt: &Attempt,
        downgrade: &Op,
        remaining: Duration,
    ) -> Result<(), HoldError> {
        Round::new(self, false).change(attempt, downgrade, remaining).await
    }

    /// Removes the mark of a caller that gives up waiting for an exclusive lock, in the background. A mark that a node
    /// keeps nevertheless runs out by itself.
    pub(crate) fn withdraw_in_background(&self, spec: &LockSpec, mark: Mark) {
        // No token holds the lock.
        let token = Token::random(spec.dialect());
        let withdraw = Op::new(spec, token, Action::Withdraw { mark });
        Round::new(self, false).send(|_, node| node.call(withdraw.clone()));
    }

    /// Returns the name and the status of each node, for the log.
    pub(crate) fn states(&self) -> String {
        let nodes = self.nodes.iter().zip(&*self.statuses);
        let states = nodes.map(|(node, status)| match status.get() {
            NodeStatus::Up => format!("{} up", node.name()),
            NodeStatus::Down(reason) => format!("{} down: {reason}", node.name()),
            NodeStatus::Connecting => format!("{} connecting", node.name()),
        });
        states.collect::<Vec<_>>().join(", ")
    }

    /// Returns whether the nodes' statuses report a quorum of nodes as up.
    pub(crate) fn has_quorum(&self) -> bool {
        let up = self.statuses.iter().filter(|status| status.get().is_up()).count();
        up >= quorum(self.nodes.len())
    }

    /// Returns whether a quorum of nodes is up and grants locks, as far as this process knows.
    pub(crate) fn is_granting(&self) -> bool {
        let nodes = self.nodes.iter().zip(&*self.statuses);
        let granting = nodes.filter(|(node, status)| status.get().is_up() && node.is_granting());
        granting.count() >= quorum(self.nodes.len())
    }

    /// Resolves as soon as the nodes' statuses report a quorum of nodes as up.
    pub(crate) async fn quorum_recovered(&self) {
        let recovered: FuturesUnordered<_> =
            self.statuses.iter().map(|status| status.wait_for(NodeStatus::is_up)).collect();
        recovered.take(quorum(self.nodes.len())).for_each(|_| async {}).await;
    }

    /// Lets the nodes that had no connection in a round without a quorum try to connect at once. Returns whether so many of
    /// them are connected that another round may find a quorum. Waits for `limit` at most.
    pub(crate) async fn reconnect(&self, spec: &LockSpec, votes: &Votes, limit: Duration) -> bool {
        use NodeError::{ConnectionBroke, NotConnected, Server};
        let is_lost = |(index, vote): (usize, Option<&Vote>)| match vote {
            Some(Vote::Failed(NotConnected(_) | ConnectionBroke(_))) => true,
            // A server that has just started is loading its data.
            Some(Vote::Failed(Server(_))) => !self.statuses[index].get().is_up(),
            _ => false,
        };
        let votes: Vec<_> = votes.iter().map(|(_, vote)| vote).collect();
        let lost = self.nodes.iter().enumerate();
        let lost =
            lost.filter(|(index, _)| is_lost((*index, votes.get(*index).copied().flatten())));
        let remotes = lost.filter_map(|(_, node)| node.remote());
        let attempts: FuturesUnordered<_> = remotes.map(|node| node.reconnect(spec)).collect();
        // Other nodes that have failed would fail again.
        let present = votes.iter().filter(|vote| !matches!(vote, Some(Vote::Failed(_)))).count();
        let missing = quorum(self.nodes.len()).saturating_sub(present);
        if missing == 0 || missing > attempts.len() {
            return false;
        }
        let connected = attempts.filter(|is_connected| std::future::ready(*is_connected));
        timeout(limit, connected.take(missing).count()).await.is_ok_and(|count| count == missing)
    }

    /// Releases the attempt in the background, on every node that was asked to set the lock. The rules are
    /// those of [`release`](Self::release). Calls `on_gone` if the release finds that no quorum had the lock any more.
    pub(crate) fn release_in_background(
        &self,
        attempt: &Arc<Attempt>,
        until: Moment,
        on_gone: impl FnOnce(&Votes) + Send + 'static,
    ) {
        attempt.abandon();
        if attempt.is_kept_until_expiry() {
            return;
        }
        let asked = self.nodes.iter().enumerate().filter(|(index, _)| attempt.was_asked(*index));
        let nodes = asked.map(|(_, node)| NodeRelease::new(node, attempt, None)).collect();
        self.complete_release(attempt, until, nodes, on_gone);
    }
}

impl Round<'_> {
    /// Asks all nodes to change a held lock. Returns [`HoldError::Lost`] if so many nodes have lost the lock that no quorum can
    /// hold it any more.
    ///
    /// A release may follow, and a node that does not keep the order of commands by itself must complete the change
    /// before the release. So the clean-up waits for the replies that are still pending.
    async fn change(
        &mut self,
        attempt: &Attempt,
        op: &Op,
        max_time: Duration,
    ) -> Result<(), HoldError> {
        self.send(|_, node| node.call(op.clone()));
        let decision = self.decide(max_time).await;
        if decision == Decision::Agreed {
            return Ok(());
        }
        let (key, votes) = (attempt.key().clone(), self.votes());
        Err(if decision == Decision::Denied && self.tally.is_refused() {
            LostError::new(key, LossCause::NotOnNodes, votes).into()
        } else {
            HoldError::Unavailable { key, votes }
        })
    }
}

/// Hands the unconfirmed part of a release to the clean-up when the release is decided or dropped.
struct ReleaseGuard<'a> {
    attempt: Arc<Attempt>,
    until: Moment,
    round: Round<'a>,
}

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        let (ballot, mut nodes) = (self.round.ballot, Vec::new());
        for (index, node) in ballot.nodes.iter().enumerate() {
            match (self.round.take_pending(index), self.round.tally.vote(index)) {
                (Some(reply), _) => nodes.push(NodeRelease::pending(node, reply)),
                (None, Some(Vote::Failed(_)) | None) => {
                    nodes.push(NodeRelease::new(node, &self.attempt, None));
                }
                (None, Some(_)) => {}
            }
        }
        ballot.complete_release(&self.attempt, self.until, nodes, |_| {});
    }
}

#[cfg(test)]
mod cleanup_tests;
#[cfg(test)]
mod fencing_tests;
#[cfg(test)]
mod reconnect_tests;
#[cfg(test)]
pub(crate) mod tests;
