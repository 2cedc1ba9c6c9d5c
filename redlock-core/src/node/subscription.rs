//! Subscriptions to the releases of a lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// The callback that a node calls when a lock is released. The callback returns at once, does not call the
/// node, and may be called from any thread.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

pub(crate) type Ready = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A subscription to the releases of one lock on one node. It ends when it is dropped.
#[must_use = "the subscription ends when it is dropped"]
pub struct Subscription {
    unsubscribe: Option<Box<dyn FnOnce() + Send + Sync>>,
    ready: Option<Ready>,
}

impl Subscription {
    /// Creates a subscription that is in effect. Dropping it calls `unsubscribe`, which must return at once.
    pub fn new(unsubscribe: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { unsubscribe: Some(Box::new(unsubscribe)), ready: None }
    }

    /// Sets the future that completes when the subscription is in effect. From then on the subscriber
    /// misses no release. If the store does not permit the subscription, `ready` completes as well, and the
    /// subscriber is never notified. A waiter waits until a quorum of its subscriptions is in effect, but no longer than
    /// the [`node_timeout`](crate::LockManagerBuilder::node_timeout).
    pub fn ready_after(mut self, ready: impl Future<Output = ()> + Send + Sync + 'static) -> Self {
        self.ready = Some(Box::pin(ready));
        self
    }

    /// Returns a future that completes when the subscription is in effect, or when it can never be. Returns
    /// `None` on later calls, and if the subscription was in effect from the beginning.
    pub(crate) fn take_ready(&mut self) -> Option<Ready> {
        self.ready.take()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(unsubscribe) = self.unsubscribe.take() {
            unsubscribe();
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}
