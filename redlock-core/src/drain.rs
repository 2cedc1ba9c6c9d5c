//! The drain of a manager: the time in which the last holders finish, and nobody else gets a lock.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether the drain of a manager has begun.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    has_begun: AtomicBool,
    /// Notified when the drain begins, and afterwards when a lock has ended.
    changed: Notify,
}

impl Drain {
    /// Begins the drain. Returns false if it has begun before.
    pub(crate) fn begin(&self) -> bool {
        let begins = !self.has_begun.swap(true, Ordering::SeqCst);
        self.changed.notify_waiters();
        begins
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::SeqCst)
    }

    /// Resolves when the drain has begun.
    pub(crate) async fn begun(&self) {
        self.until(|| self.has_begun()).await;
    }

    /// Records that a lock of the manager has ended.
    #[inline]
    pub(crate) fn record_end(&self) {
        if self.has_begun() {
            self.changed.notify_waiters();
        }
    }

    /// Resolves when `condition` returns true. Looks at it whenever the drain begins or a lock ends.
    pub(crate) async fn until(&self, condition: impl Fn() -> bool) {
        loop {
            // Before the look, so that no change is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if condition() {
                return;
            }
            changed.await;
        }
    }
}
