//! A handler that a test keeps inside until it may leave.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// Counts the handlers that run at the same time. Clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    inside: watch::Sender<usize>,
    exits: Arc<Semaphore>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { inside: watch::Sender::new(0), exits: Arc::new(Semaphore::new(0)) }
    }

    /// Runs a handler until [`leave`](Self::leave) lets it end.
    pub(crate) async fn enter(&self) {
        self.inside.send_modify(|inside| *inside += 1);
        self.exits.acquire().await.unwrap().forget();
        self.inside.send_modify(|inside| *inside -= 1);
    }

    /// Lets this number of handlers end.
    pub(crate) fn leave(&self, handlers: usize) {
        self.exits.add_permits(handlers);
    }

    /// Waits until this number of handlers run. Panics after ten seconds.
    pub(crate) async fn until_inside(&self, handlers: usize) {
        let mut inside = self.inside.subscribe();
        let reached = inside.wait_for(|inside| *inside == handlers);
        timeout(Duration::from_secs(10), reached).await.unwrap().unwrap();
    }

    /// Returns the number of handlers that run.
    pub(crate) fn inside(&self) -> usize {
        *self.inside.borrow()
    }
}
