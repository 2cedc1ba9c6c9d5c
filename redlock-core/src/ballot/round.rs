//! One round: the same command to all nodes, and the wait for their votes.

use std::cmp::Reverse;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::round_timer::RoundTimer;
use super::tally::{Decision, Tally};
use crate::error::{NodeError, Vote, Votes};
use crate::fencing_token::FencingToken;
use crate::home::Home;
use crate::node::{Node, Reply, ReplyFuture, Silence};

/// How many times a round checks the nodes without a reply before the silence limit is over. A server that
/// went silent between two replies may owe a reply without the node noticing; a check makes the node find out
/// ([`Node::silence`]).
const SILENCE_CHECKS: u32 = 4;

/// The shortest pause between two checks of nodes that are not known to be silent.
const MIN_CHECK_PAUSE: Duration = Duration::from_millis(1);

/// How long a round waits for nodes that have not replied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundLimits<'a> {
    /// The runtime of the nodes' connections. While it is not driven, the nodes are not silent, but no reply can come.
    pub(crate) home: &'a Home,
    /// A node counts as failed once it has been silent for this time. A reply that is late only because this
    /// process was held up does not count as silence.
    pub(crate) max_silence: Duration,
    /// The round ends after this time: later votes would be worthless, because the lease would be over.
    pub(crate) max_time: Duration,
}

/// Replies that are still pending, each with the index of its node.
pub(crate) type PendingReplies = SmallVec<[(usize, ReplyFuture); 2]>;

/// One command to all nodes, and the votes so far.
#[derive(Debug)]
pub(crate) struct Round {
    begun: Instant,
    /// The replies that are still pending, by node. Polled together in the caller's task: for a handful of nodes this is
    /// faster than a task or a waker for each.
    replies: SmallVec<[Option<ReplyFuture>; 1]>,
    tally: Tally,
    /// Whether a grant counts only if it comes with a number.
    is_fenced: bool,
    /// The greatest number that a node has returned.
    number: Option<i64>,
    /// How many subscribers were notified, on the node with the most.
    subscribers: Option<usize>,
    /// Whether a node takes marks at the lock.
    takes_marks: bool,
    /// The indexes of the keys for which nodes have refused the lock, as far as the nodes name them.
    refused_keys: SmallVec<[u16; 4]>,
}

impl Round {
    /// Begins a round. If `is_fenced` is true, counts a grant without a number as a failure: its holder could not be
    /// distinguished from the previous holder.
    pub(crate) fn new(nodes: &[Arc<dyn Node>], is_fenced: bool) -> Self {
        Self {
            begun: Instant::now(),
            replies: SmallVec::with_capacity(nodes.len()),
            tally: Tally::new(nodes.len()),
            is_fenced,
            number: None,
            subscribers: None,
            takes_marks: false,
            refused_keys: SmallVec::new(),
        }
    }

    /// Adds a command for every node. `command` returns the reply future, which is ready at once for a node
    /// that is not asked.
    pub(crate) fn send(
        &mut self,
        nodes: &[Arc<dyn Node>],
        command: impl Fn(usize, &Arc<dyn Node>) -> ReplyFuture,
    ) {
        for (index, node) in nodes.iter().enumerate() {
            self.replies.push(Some(command(index, node)));
        }
    }

    /// Waits until the round is decided. A node that is silent for too long counts as failed; if it replies
    /// before the decision after all, its vote counts. Cancel safe: the votes so far are kept.
    pub(crate) async fn decide(
        &mut self,
        nodes: &[Arc<dyn Node>],
        limits: RoundLimits<'_>,
    ) -> Decision {
        let RoundLimits { home, max_silence, max_time } = limits;
        let mut timer = None;
        std::future::poll_fn(|cx| {
            if let Some(decision) = self.poll(cx) {
                return Poll::Ready(decision);
            }
            // The first poll needs no timer: nodes in memory, and nodes that are down, reply at once.
            if timer.is_none() {
                let first = home.first_check(max_silence).min(max_silence / SILENCE_CHECKS);
                let pause = first.min(max_time);
                timer = Some(RoundTimer::until(self.begun + pause));
            }
            while let Some(timer) = &mut timer
                && timer.poll(cx).is_ready()
            {
                let waited = self.begun.elapsed();
                let is_idle = home.is_idle(max_silence);
                if waited >= max_time && !is_idle {
                    // The remaining nodes are not known to be silent, so they get no vote.
                    return Poll::Ready(Decision::OutOfTime);
                }
                // Silence is checked before the replies are polled again: a node that was silent until now
                // may have replied in the meantime.
                let (silent, pause) = self.silent_nodes(nodes, max_silence, waited);
                if let Some(decision) = self.poll(cx) {
                    return Poll::Ready(decision);
                }
                let silent =
                    silent.into_iter().map(|(index, waited)| (index, NodeError::NoReply(waited)));
                let all = (0..nodes.len()).filter(|_| is_idle);
                for (index, error) in silent.chain(all.map(|index| (index, NodeError::RuntimeIdle)))
                {
                    if self.replies[index].is_some() {
                        self.tally.count(index, Vote::Failed(error));
                    }
                }
                if let Some(decision) = self.tally.decision() {
                    return Poll::Ready(decision);
                }
                let pause = pause.max(MIN_CHECK_PAUSE).min(max_time.saturating_sub(waited));
                timer.reset(Instant::now() + pause);
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the silent nodes without a vote, each with the duration of its silence, and the pause after
    /// which the other nodes should be checked again.
    fn silent_nodes(
        &self,
        nodes: &[Arc<dyn Node>],
        limit: Duration,
        waited: Duration,
    ) -> (Vec<(usize, Duration)>, Duration) {
        let (mut silent, mut pause) = (Vec::new(), limit / SILENCE_CHECKS);
        for (index, node) in nodes.iter().enumerate() {
            if self.tally.vote(index).is_some() {
                continue;
            }
            match node.silence(limit, waited) {
                Silence::Silent(time) => silent.push((index, time)),
                Silence::CheckAgainAfter(look_again) => pause = pause.min(look_again),
            }
        }
        (silent, pause)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Option<Decision> {
        for index in 0..self.replies.len() {
            if let Some(reply) = &mut self.replies[index]
                && let Poll::Ready(reply) = Pin::new(reply).poll(cx)
            {
                self.replies[index] = None;
                self.count(index, reply);
            }
        }
        self.tally.decision()
    }

    fn count(&mut self, index: usize, reply: Reply) {
        let is_numbered =
            reply.number.is_some_and(|number| FencingToken::NUMBER_RANGE.contains(&number));
        if self.is_fenced && reply.vote == Vote::Granted && !is_numbered {
            self.tally.count(index, Vote::Failed(NodeError::UnexpectedReply));
            return;
        }
        self.number = reply.number.max(self.number);
        self.subscribers = reply.subscribers.max(self.subscribers);
        self.takes_marks |= reply.takes_marks;
        if let Some(key) = reply.refused_key.and_then(|key| u16::try_from(key).ok()) {
            self.refused_keys.push(key);
        }
        self.tally.count(index, reply.vote);
    }

    /// Returns when the round began.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Returns the greatest number that a node has returned so far.
    pub(crate) fn number(&self) -> Option<i64> {
        self.number
    }

    /// Returns how many subscribers were notified so far, on the node with the most.
    pub(crate) fn subscribers(&self) -> Option<usize> {
        self.subscribers
    }

    /// Returns whether a node takes marks at the lock.
    pub(crate) fn takes_marks(&self) -> bool {
        self.takes_marks
    }

    /// Returns the index of the key for which most nodes refused the lock; of several, the lowest. A key that a
    /// crashed holder has left on a few nodes therefore does not hide the key that prevents the quorum.
    pub(crate) fn refused_key(&self) -> usize {
        let named = &self.refused_keys;
        let votes = |key: u16| named.iter().filter(|other| **other == key).count();
        let most = named.iter().max_by_key(|key| (votes(**key), Reverse(**key)));
        most.copied().map_or(0, usize::from)
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns each node's vote so far.
    pub(crate) fn votes(&self, nodes: &[Arc<dyn Node>]) -> Votes {
        nodes
            .iter()
            .enumerate()
            .map(|(index, node)| (Arc::clone(node.name()), self.tally.vote(index).cloned()))
            .collect()
    }

    /// Takes a node's reply future, if it is still pending.
    pub(crate) fn take_pending(&mut self, index: usize) -> Option<ReplyFuture> {
        self.replies.get_mut(index)?.take()
    }

    /// Takes all pending reply futures, each with the index of its node.
    pub(crate) fn take_all_pending(&mut self) -> PendingReplies {
        let pending = self.replies.iter_mut().enumerate();
        pending.filter_map(|(index, reply)| Some((index, reply.take()?))).collect()
    }

    /// Returns a node's vote, if it has one. A node that was not asked has the vote that `send` got for
    /// it.
    pub(crate) fn vote(&self, index: usize) -> Option<&Vote> {
        self.tally.vote(index)
    }
}
