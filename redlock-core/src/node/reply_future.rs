//! The future of a reply.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Reply;

/// The future of a node's [`Reply`].
///
/// The node sends nothing before the first poll. Dropping the future does not undo the operation: a caller
/// that drops the future of an acquisition must release the lock.
pub struct ReplyFuture(ReplyState);

enum ReplyState {
    Ready(Reply),
    Pending(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

impl ReplyFuture {
    /// Wraps a future that executes an operation. The operation starts with the first poll.
    pub fn new(future: impl Future<Output = Reply> + Send + 'static) -> Self {
        Self(ReplyState::Pending(Box::pin(future)))
    }

    /// Creates a future that is ready with this reply. A [failure](crate::Vote::Failed) means that the
    /// operation was not sent, regardless of the error.
    pub fn ready(reply: impl Into<Reply>) -> Self {
        Self(ReplyState::Ready(reply.into()))
    }

    /// Returns the reply if the future was created by [`ready`](Self::ready).
    pub(crate) fn as_ready(&self) -> Option<&Reply> {
        match &self.0 {
            ReplyState::Ready(reply) => Some(reply),
            ReplyState::Pending(_) => None,
        }
    }
}

impl Future for ReplyFuture {
    type Output = Reply;

    /// A future from [`ready`](ReplyFuture::ready) may be polled again after its completion. For a future
    /// from [`new`](ReplyFuture::new), the wrapped future decides what such a poll does.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        match &mut self.0 {
            ReplyState::Ready(reply) => Poll::Ready(reply.clone()),
            ReplyState::Pending(future) => future.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for ReplyFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReplyFuture").field(&self.as_ready()).finish()
    }
}
