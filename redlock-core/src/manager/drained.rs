//! The wait for the last holders of a manager.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use crate::context::Context;

/// A future that resolves when a manager whose drain has begun holds no lock any more. Returned by
/// [`LockManager::drain`](crate::LockManager::drain).
///
/// The drain goes on if the future is dropped or is never polled.
///
/// # Cancel safety
///
/// Cancel safe.
pub struct Drained {
    future: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

impl Drained {
    pub(super) fn new(context: Arc<Context>) -> Self {
        let future = async move {
            let is_free = || context.queues.holders(|_| true) == 0;
            context.home.drain.until(is_free).await;
        };
        Self { future: Box::pin(future) }
    }
}

impl Future for Drained {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(context)
    }
}

impl fmt::Debug for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drained").finish_non_exhaustive()
    }
}
