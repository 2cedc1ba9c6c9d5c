//! One waiter, as its queue knows it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::lease::Held;

/// The requirements of one waiter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaiterOptions {
    /// The lease it asks for.
    pub(crate) expire: Duration,
    /// Whether it may take over a lock that another caller acquired.
    pub(crate) takes_over: bool,
    /// Whether its lock has to be numbered.
    pub(crate) fenced: bool,
    /// The scope that it waits in, if any.
    pub(crate) scope: Option<u64>,
}

/// One waiter in a queue.
#[derive(Debug)]
pub(super) struct QueueEntry {
    pub(super) options: WaiterOptions,
    pub(super) state: Mutex<EntryState>,
    pub(super) changed: Notify,
}

#[derive(Debug)]
pub(super) enum EntryState {
    /// It waits for its turn.
    Waiting,
    /// It is the first, and asks the nodes.
    Asking,
    /// It was handed the lock, and has not taken it yet.
    HandedOver(Arc<Held>),
}

impl QueueEntry {
    pub(super) fn new(options: WaiterOptions) -> Self {
        Self { options, state: Mutex::new(EntryState::Waiting), changed: Notify::new() }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.state.lock(), EntryState::Waiting)
    }

    /// Gives the waiter a lock, and wakes it.
    pub(super) fn hand_over(&self, held: Arc<Held>) {
        *self.state.lock() = EntryState::HandedOver(held);
        self.changed.notify_one();
    }
}
