//! The future of a reply.

use std::fmt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use super::Reply;

/// The future of a node's [`Reply`].
///
/// The node sends nothing before the first poll. Dropping the future does not undo the operation: a caller
/// that drops the future of an acquisition must release the lock.
///
/// If its connection is abandoned, the future of a Redis node fails on its next poll but is not woken:
/// registering a waker per command would slow every lock down. Callers without a deadline use
/// `poll_periodically`.
pub struct ReplyFuture(ReplyState);

enum ReplyState {
    Ready(Reply),
    Pending(Pin<Box<dyn Future<Output = Reply> + Send>>),
    /// `None` after the reply.
    #[cfg(feature = "redis")]
    Executing(Option<Box<dyn Execution>>),
}

/// The execution of an operation, whose memory serves further operations.
#[cfg(feature = "redis")]
pub(crate) trait Execution: Send {
    /// Waits for the reply.
    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Reply>;

    /// Keeps the memory for the next operation. Called after the reply.
    fn recycle(self: Box<Self>);
}

impl ReplyFuture {
    /// Wraps a future that executes an operation. The operation starts with the first poll.
    pub fn new(future: impl Future<Output = Reply> + Send + 'static) -> Self {
        Self(ReplyState::Pending(Box::pin(future)))
    }

    /// Like [`new`](Self::new), for an execution whose memory serves further operations.
    #[cfg(feature = "redis")]
    pub(crate) fn executing(execution: Box<dyn Execution>) -> Self {
        Self(ReplyState::Executing(Some(execution)))
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
            #[cfg(feature = "redis")]
            ReplyState::Executing(_) => None,
        }
    }
}

impl Future for ReplyFuture {
    type Output = Reply;

    /// A future from [`ready`](ReplyFuture::ready) may be polled again after its completion. For a future
    /// from [`new`](ReplyFuture::new), the wrapped future decides what such a poll does. The future of a Redis node
    /// is pending for ever after its reply.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        match &mut self.0 {
            ReplyState::Ready(reply) => Poll::Ready(reply.clone()),
            ReplyState::Pending(future) => future.as_mut().poll(cx),
            #[cfg(feature = "redis")]
            ReplyState::Executing(state) => {
                let Some(execution) = state else { return Poll::Pending };
                let reply = std::task::ready!(execution.poll_reply(cx));
                state.take().into_iter().for_each(Execution::recycle);
                Poll::Ready(reply)
            }
        }
    }
}

impl fmt::Debug for ReplyFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ReplyState::Ready(reply) => f.debug_tuple("Ready").field(reply).finish(),
            ReplyState::Pending(_) => f.write_str("Pending"),
            #[cfg(feature = "redis")]
            ReplyState::Executing(_) => f.write_str("Pending"),
        }
    }
}

/// Awaits replies without a deadline, and polls them once per second even if nothing wakes them.
pub(crate) async fn poll_periodically<F: Future>(replies: F) -> F::Output {
    const PERIOD: Duration = Duration::from_secs(1);
    let mut replies = pin!(replies);
    loop {
        if let Ok(output) = tokio::time::timeout(PERIOD, replies.as_mut()).await {
            return output;
        }
    }
}
