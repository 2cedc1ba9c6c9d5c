//! Many answers awaited in one task.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::node::{Reply, ReplyFuture, poll_periodically};

/// The answers of the nodes, polled together in the caller's task: for a handful of nodes that is
/// faster than a task or a wake-up list for each.
#[derive(Default)]
pub(crate) struct FanOut {
    replies: Vec<Option<ReplyFuture>>,
    pending: usize,
}

impl FanOut {
    pub(crate) fn with_capacity(nodes: usize) -> Self {
        Self { replies: Vec::with_capacity(nodes), pending: 0 }
    }

    /// Adds the answer of the next node.
    pub(crate) fn push(&mut self, reply: ReplyFuture) {
        self.replies.push(Some(reply));
        self.pending += 1;
    }

    /// Takes the answer of a node away, if it is still awaited.
    pub(crate) fn take(&mut self, index: usize) -> Option<ReplyFuture> {
        let answer = self.replies.get_mut(index)?.take();
        self.pending -= usize::from(answer.is_some());
        answer
    }

    /// Whether the answer of a node is awaited.
    pub(crate) fn is_pending(&self, index: usize) -> bool {
        self.replies.get(index).is_some_and(Option::is_some)
    }

    /// Whether nothing is awaited.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Polls every answer once and reports the replies that have come in.
    pub(crate) fn poll_all(&mut self, cx: &mut Context<'_>, mut replied: impl FnMut(usize, Reply)) {
        for (index, slot) in self.replies.iter_mut().enumerate() {
            let Some(future) = slot else { continue };
            if let Poll::Ready(reply) = Pin::new(future).poll(cx) {
                *slot = None;
                self.pending -= 1;
                replied(index, reply);
            }
        }
    }

    /// Waits for all answers.
    pub(crate) async fn finish(mut self, mut replied: impl FnMut(usize, Reply)) {
        poll_periodically(std::future::poll_fn(|cx| {
            self.poll_all(cx, &mut replied);
            if self.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }))
        .await;
    }
}

impl fmt::Debug for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FanOut").field("pending", &self.pending).finish_non_exhaustive()
    }
}
