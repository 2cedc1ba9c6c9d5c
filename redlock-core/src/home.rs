//! The Tokio runtime of a manager.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The runtime that runs the background work of a manager: the first that uses the manager. Connections, renewals and
/// releases run there.
#[derive(Debug)]
pub(crate) struct Home {
    runtime: OnceLock<Handle>,
    has_ended: Arc<AtomicBool>,
    /// Ends the task that notices the end of the runtime.
    dropped: CancellationToken,
    _cancel_on_drop: DropGuard,
}

/// Reports the end of the runtime when the runtime drops the task that holds this value.
struct EndGuard<F: FnOnce()> {
    has_ended: Arc<AtomicBool>,
    report: Option<F>,
}

impl<F: FnOnce()> Drop for EndGuard<F> {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::SeqCst);
        if let Some(report) = self.report.take() {
            report();
        }
    }
}

impl Home {
    pub(crate) fn new() -> Arc<Self> {
        let dropped = CancellationToken::new();
        Arc::new(Self {
            runtime: OnceLock::new(),
            has_ended: Arc::default(),
            _cancel_on_drop: dropped.clone().drop_guard(),
            dropped,
        })
    }

    /// Makes the runtime of this thread the home, if there is none yet. Then calls `start`, which starts the background
    /// work, and returns what to do when the runtime has ended.
    pub(crate) fn enter<F>(&self, start: impl FnOnce(&Handle) -> F)
    where
        F: FnOnce() + Send + 'static,
    {
        if self.runtime.get().is_some() {
            return;
        }
        let Ok(current) = Handle::try_current() else { return };
        self.runtime.get_or_init(|| {
            let (has_ended, report) = (Arc::clone(&self.has_ended), Some(start(&current)));
            // Created outside of the task: a runtime that ends drops a new task without polling it.
            let end = EndGuard { has_ended, report };
            let dropped = self.dropped.clone();
            current.spawn(async move {
                let mut end = end;
                dropped.cancelled().await;
                end.report = None;
            });
            current
        });
    }

    /// Returns the home, or the runtime of this thread as long as there is no home. `None` if there is neither: then all
    /// nodes are in memory, and reply at once.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        self.runtime.get().cloned().or_else(|| Handle::try_current().ok())
    }

    /// Sends a task to the home, which is finished at once as long as a thread drives the home. `None` in the home itself.
    pub(crate) fn pulse(&self) -> Option<JoinHandle<()>> {
        let home = self.runtime.get()?;
        let is_elsewhere = Handle::try_current().is_ok_and(|current| current.id() != home.id());
        is_elsewhere.then(|| home.spawn(std::future::ready(())))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }
}
