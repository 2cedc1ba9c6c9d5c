//! Whether a node can be asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether there is a connection to a node, for those who wait for one. They are told in the order in
/// which they came.
#[derive(Debug, Default)]
pub(crate) struct Availability {
    now: AtomicBool,
    changed: Notify,
}

impl Availability {
    pub(crate) fn set(&self, now: bool) {
        self.now.store(now, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Waits until there is a connection: for ever where the node is gone for good.
    pub(crate) async fn wait(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.now.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn whoever_waits_is_told() {
        let reachable = Arc::new(Availability::default());
        let mut waiting = Box::pin(Arc::clone(&reachable).wait());
        assert!(waiting.as_mut().now_or_never().is_none());
        reachable.set(true);
        waiting.now_or_never().expect("there is a connection");
        Arc::clone(&reachable).wait().now_or_never().expect("there still is");
        reachable.set(false);
        assert!(reachable.wait().now_or_never().is_none());
    }
}
