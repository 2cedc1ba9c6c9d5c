//! The future that `LockGuard::lost` returns.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::lease::Held;

/// A future that resolves when a lock is lost. Returned by [`LockGuard::lost`](crate::LockGuard::lost).
///
/// # Cancel safety
///
/// Cancel safe.
#[must_use = "futures do nothing unless they are polled"]
pub struct Lost {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Lost {
    pub(super) fn new(held: Arc<Held>) -> Self {
        Self { future: Box::pin(held.lost()) }
    }

    /// Returns a future that resolves at once, for a lock that was never held. No public API.
    #[doc(hidden)]
    pub fn ready() -> Self {
        Self { future: Box::pin(std::future::ready(())) }
    }
}

impl Future for Lost {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(context)
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").finish_non_exhaustive()
    }
}
