//! One question to all nodes.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::fan_out::FanOut;
use super::tally::{Tally, Verdict};
use crate::error::{Vote, Votes};
use crate::node::{Answer, Node};

/// A timer that fires later than this says that this process was held up, not the nodes: their
/// answers may be waiting in the sockets.
const HELD_UP: Duration = Duration::from_millis(2);
/// How long the nodes' answers are then waited for.
const GRACE: Duration = Duration::from_millis(10);

/// One question to all nodes, and the votes so far.
#[derive(Debug)]
pub(crate) struct Round {
    fan_out: FanOut,
    tally: Tally,
}

impl Round {
    pub(crate) fn new(nodes: &[Arc<dyn Node>]) -> Self {
        Self { fan_out: FanOut::with_capacity(nodes.len()), tally: Tally::new(nodes.len()) }
    }

    /// Puts the question to every node.
    pub(crate) fn ask(
        &mut self,
        nodes: &[Arc<dyn Node>],
        question: impl Fn(usize, &Arc<dyn Node>) -> Answer,
    ) {
        for (index, node) in nodes.iter().enumerate() {
            self.fan_out.push(question(index, node));
        }
    }

    /// Waits until the round is decided, at most for `timeout`; nodes that have not answered by
    /// then count as failed. Cancel safe: what came in is kept.
    pub(crate) async fn decide(&mut self, timeout: Duration) -> Verdict {
        // Without a timer first: nodes in memory, and nodes that are down, answer at once.
        if let Some(verdict) = std::future::poll_fn(|cx| Poll::Ready(self.poll(cx))).await {
            return verdict;
        }

        let deadline = Instant::now() + timeout;
        let mut timer = pin!(sleep_until(deadline));
        let mut grace = Some(GRACE);
        // The answers that were polled above will wake this task.
        let mut polled = true;
        std::future::poll_fn(|cx| {
            loop {
                if !std::mem::take(&mut polled)
                    && let Some(verdict) = self.poll(cx)
                {
                    return Poll::Ready(verdict);
                }
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                match grace.take() {
                    Some(grace) if deadline.elapsed() > HELD_UP => {
                        timer.as_mut().reset(Instant::now() + grace);
                    }
                    _ => break,
                }
            }
            self.tally.close(timeout);
            Poll::Ready(self.tally.verdict().unwrap_or(Verdict::Rejected))
        })
        .await
    }

    fn poll(&mut self, cx: &mut std::task::Context<'_>) -> Option<Verdict> {
        let Self { fan_out, tally } = self;
        fan_out.poll_all(cx, |index, vote| tally.count(index, vote));
        tally.verdict()
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What each node has said so far.
    pub(crate) fn votes(&self, nodes: &[Arc<dyn Node>]) -> Votes {
        nodes
            .iter()
            .enumerate()
            .map(|(index, node)| (Arc::clone(node.name()), self.tally.vote(index).cloned()))
            .collect()
    }

    /// The answer of a node that is still under way.
    pub(crate) fn take_pending(&mut self, index: usize) -> Option<Answer> {
        self.fan_out.take(index)
    }

    /// The answers that are still under way, if there are any.
    pub(crate) fn take_rest(&mut self) -> Option<FanOut> {
        (!self.fan_out.is_empty()).then(|| std::mem::take(&mut self.fan_out))
    }

    /// What a node's vote was, or would have been.
    pub(crate) fn vote(&self, index: usize) -> Option<&Vote> {
        self.tally.vote(index)
    }
}
