//! Subscriptions to the releases of a lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// What a node calls when a lock is released. It returns at once, does not call the node, and may be called
/// from any thread.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

pub(crate) type Ready = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A subscription to the releases of one lock on one node. It ends when it is dropped.
#[must_use = "the subscription ends when it is dropped"]
pub struct Subscription {
    unsubscribe: Option<Box<dyn FnOnce() + Send + Sync>>,
    ready: Option<Ready>,
}

impl Subscription {
    /// A subscription that is in effect. `unsubscribe` is called when it is dropped, and returns at once.
    pub fn new(unsubscribe: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { unsubscribe: Some(Box::new(unsubscribe)), ready: None }
    }

    /// A subscription that comes into effect when `ready` completes. From then on no release is missed,
    /// or none will ever be heard of, because the store does not permit the subscription.
    pub fn ready_after(mut self, ready: impl Future<Output = ()> + Send + Sync + 'static) -> Self {
        self.ready = Some(Box::pin(ready));
        self
    }

    /// Returns a future that completes when the subscription is in effect, or will never be. Later calls
    /// return `None`, as does the first one where the subscription is in effect already.
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
