//! The future that `LockHandle::lost` returns.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::lease::Held;

/// A future that resolves when a lock is lost. Returned by [`LockHandle::lost`](crate::LockHandle::lost).
///
/// A lost lock stays lost, so a `Lost` that has resolved may be polled again, and resolves at once.
///
/// # Cancel safety
///
/// Cancel safe.
#[must_use = "futures do nothing unless they are polled"]
pub struct Lost {
    /// `None` once the future has resolved.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Lost {
    pub(super) fn new(held: Arc<Held>) -> Self {
        Self { future: Some(Box::pin(held.lost())) }
    }

    /// Returns a future that resolves at once, for a lock that was never held. No public API.
    #[doc(hidden)]
    pub fn ready() -> Self {
        Self { future: None }
    }
}

impl Future for Lost {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(future) = &mut self.future {
            ready!(future.as_mut().poll(context));
            self.future = None;
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").finish_non_exhaustive()
    }
}
