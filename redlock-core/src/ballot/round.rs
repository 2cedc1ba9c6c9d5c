//! One round: the same command to all nodes, and the wait for their votes.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Ballot;
use super::tally::{Decision, Tally};
use crate::error::{NodeError, Vote, Votes};
use crate::fencing_token::FencingToken;
use crate::node::{Node, Reply, ReplyFuture, Silence};

/// How many times a round checks the nodes without a reply before the silence limit is over. A node may have been silent
/// already when the round began.
const SILENCE_CHECKS: u32 = 4;

/// The shortest pause between two checks of nodes that are not known to be silent.
const MIN_CHECK_PAUSE: Duration = Duration::from_millis(1);

/// Replies that are still pending, each with the index of its node.
pub(super) type PendingReplies = SmallVec<[(usize, ReplyFuture); 2]>;

/// One command to all nodes, and the replies so far. When a round is decided or dropped, the clean-up waits for the
/// replies that are still pending, unless they were taken.
#[derive(Debug)]
pub(super) struct Round<'a> {
    pub(super) ballot: &'a Ballot,
    pub(super) begun: Instant,
    /// The replies that are still pending, by node. Polled together in the caller's task: for a handful of nodes this is
    /// faster than a task or a waker for each.
    pending: SmallVec<[Option<ReplyFuture>; 1]>,
    pub(super) tally: Tally,
    /// Whether a grant counts only if it comes with a number.
    is_fenced: bool,
}

impl<'a> Round<'a> {
    /// Begins a round. If `is_fenced` is true, counts a grant without a number as a failure: its holder could not be
    /// distinguished from the previous holder.
    pub(super) fn new(ballot: &'a Ballot, is_fenced: bool) -> Self {
        let nodes = ballot.nodes.len();
        Self {
            ballot,
            begun: Instant::now(),
            pending: SmallVec::with_capacity(nodes),
            tally: Tally::new(nodes),
            is_fenced,
        }
    }

    /// Adds a command for every node. `command` returns the reply future, which is ready at once for a node
    /// that is not asked.
    pub(super) fn send(&mut self, command: impl Fn(usize, &dyn Node) -> ReplyFuture) {
        for (index, node) in self.ballot.nodes.iter().enumerate() {
            self.pending.push(Some(command(index, &**node)));
        }
    }

    /// Waits until the round is decided. A node that is silent for too long counts as failed; if it replies
    /// before the decision after all, its vote counts. A reply that is late only because this process was held up does not
    /// count as silence. The round ends after `max_time`: later votes would be worthless, because the lease would be
    /// over. Cancel safe: the votes so far are kept.
    pub(super) async fn decide(&mut self, max_time: Duration) -> Decision {
        let Ballot { home, node_timeout: max_silence, .. } = self.ballot;
        let mut timer = pin!(None::<Sleep>);
        std::future::poll_fn(|cx| {
            if let Some(decision) = self.poll(cx) {
                return Poll::Ready(decision);
            }
            // The first poll needs no timer: nodes in memory, and nodes that are down, reply at once.
            if timer.is_none() {
                let first = home.first_check(*max_silence).min(*max_silence / SILENCE_CHECKS);
                let pause = first.min(max_time);
                timer.set(Some(sleep_until(self.begun + pause)));
            }
            while let Some(mut timer) = timer.as_mut().as_pin_mut()
                && timer.as_mut().poll(cx).is_ready()
            {
                let waited = self.begun.elapsed();
                // While no thread drives the home, the nodes are not silent, but no reply can come.
                let is_idle = home.is_idle(*max_silence);
                if waited >= max_time && !is_idle {
                    // The remaining nodes are not known to be silent, so they get no vote.
                    return Poll::Ready(Decision::OutOfTime);
                }
                // Silence is checked before the replies are polled again: a node that was silent until now
                // may have replied in the meantime.
                let (failed, pause) = self.failed_nodes(waited, is_idle);
                if let Some(decision) = self.poll(cx) {
                    return Poll::Ready(decision);
                }
                for (index, error) in failed {
                    if self.pending[index].is_some() {
                        self.tally.count(index, Vote::Failed(error).into());
                    }
                }
                if let Some(decision) = self.tally.decision() {
                    return Poll::Ready(decision);
                }
                let pause = pause.max(MIN_CHECK_PAUSE).min(max_time.saturating_sub(waited));
                timer.as_mut().reset(Instant::now() + pause);
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the nodes without a reply that count as failed: the silent ones, or all if no thread drives the home. Also
    /// returns the pause after which the other nodes should be checked again.
    fn failed_nodes(&self, waited: Duration, is_idle: bool) -> (Vec<(usize, NodeError)>, Duration) {
        let limit = self.ballot.node_timeout;
        let (mut failed, mut pause) = (Vec::new(), limit / SILENCE_CHECKS);
        for (index, node) in self.ballot.nodes.iter().enumerate() {
            if self.pending[index].is_none() {
                continue;
            }
            if is_idle {
                failed.push((index, NodeError::RuntimeIdle));
                continue;
            }
            match node.silence(limit, waited) {
                Silence::Silent(time) => failed.push((index, NodeError::NoReply(time))),
                Silence::CheckAgainAfter(look_again) => pause = pause.min(look_again),
            }
        }
        (failed, pause)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Option<Decision> {
        for index in 0..self.pending.len() {
            if let Some(reply) = &mut self.pending[index]
                && let Poll::Ready(reply) = Pin::new(reply).poll(cx)
            {
                self.pending[index] = None;
                self.count(index, reply);
            }
        }
        self.tally.decision()
    }

    fn count(&mut self, index: usize, mut reply: Reply) {
        let is_numbered =
            reply.number.is_some_and(|number| FencingToken::NUMBER_RANGE.contains(&number));
        if self.is_fenced && reply.vote == Vote::Agreed && !is_numbered {
            reply = Vote::Failed(NodeError::UnexpectedReply).into();
        }
        self.tally.count(index, reply);
    }

    /// Returns each node's vote so far.
    pub(super) fn votes(&self) -> Votes {
        let nodes = self.ballot.nodes.iter().enumerate();
        nodes
            .map(|(index, node)| (Arc::clone(node.name()), self.tally.vote(index).cloned()))
            .collect()
    }

    /// Takes a node's reply future, if it is still pending.
    pub(super) fn take_pending(&mut self, index: usize) -> Option<ReplyFuture> {
        self.pending.get_mut(index)?.take()
    }

    /// Takes all pending reply futures, each with the index of its node.
    pub(super) fn take_all_pending(&mut self) -> PendingReplies {
        let pending = self.pending.iter_mut().enumerate();
        pending.filter_map(|(index, reply)| Some((index, reply.take()?))).collect()
    }
}
