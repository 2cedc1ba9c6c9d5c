//! Waits for several replies in one task.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;

use crate::node::{Reply, ReplyFuture, poll_periodically};

/// The replies of the nodes, polled together in the caller's task. For a handful of nodes this is faster than
/// a task or a waker for each reply.
#[derive(Default)]
pub(crate) struct FanOut {
    replies: SmallVec<[Option<ReplyFuture>; 1]>,
    pending: usize,
}

impl FanOut {
    pub(crate) fn with_capacity(nodes: usize) -> Self {
        Self { replies: SmallVec::with_capacity(nodes), pending: 0 }
    }

    /// Adds the reply future of the next node.
    pub(crate) fn push(&mut self, reply: ReplyFuture) {
        self.replies.push(Some(reply));
        self.pending += 1;
    }

    /// Takes a node's reply future, if it is still pending.
    pub(crate) fn take(&mut self, index: usize) -> Option<ReplyFuture> {
        let reply = self.replies.get_mut(index)?.take();
        self.pending -= usize::from(reply.is_some());
        reply
    }

    /// Returns whether a node's reply is still pending.
    pub(crate) fn is_pending(&self, index: usize) -> bool {
        self.replies.get(index).is_some_and(Option::is_some)
    }

    /// Returns whether no reply is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Polls every pending reply once, and calls `replied` for each that has arrived.
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

    /// Waits for all replies, and calls `replied` for each.
    pub(crate) async fn await_all(mut self, mut replied: impl FnMut(usize, Reply)) {
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
