//! The entry of one waiter in its queue.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::fair::FairQueue;
use crate::lease::Held;
use crate::lock::Mode;

/// The requirements of one waiter.
#[derive(Debug, Clone)]
pub(crate) struct WaiterOptions {
    /// The lease that the waiter requests.
    pub(crate) expire: Duration,
    /// Whether the waiter may take over a lock that another caller acquired.
    pub(crate) accepts_hand_over: bool,
    /// Whether the waiter needs a fencing token.
    pub(crate) fenced: bool,
    /// The scope in which the caller waits, if any.
    pub(crate) scope: Option<u64>,
    /// The fair queue in which the caller waits, if any.
    pub(crate) fair: Option<Arc<FairQueue>>,
}

/// The entry of one waiter in its queue.
#[derive(Debug)]
pub(super) struct QueueEntry {
    /// The mode of the lock that the waiter requests.
    pub(super) mode: Mode,
    pub(super) options: WaiterOptions,
    pub(super) state: Mutex<EntryState>,
    pub(super) changed: Notify,
}

#[derive(Debug)]
pub(super) enum EntryState {
    /// The waiter waits for its turn.
    Waiting,
    /// The waiter is the first of its queue, and asks the nodes.
    Asking,
    /// The lock was handed over to the waiter, which has not taken it yet.
    HandedOver(Arc<Held>),
}

impl QueueEntry {
    pub(super) fn new(mode: Mode, options: WaiterOptions) -> Self {
        Self { mode, options, state: Mutex::new(EntryState::Waiting), changed: Notify::new() }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.state.lock(), EntryState::Waiting)
    }

    /// Hands a lock over to the waiter, and wakes it.
    pub(super) fn assign(&self, held: Arc<Held>) {
        *self.state.lock() = EntryState::HandedOver(held);
        self.changed.notify_one();
    }
}
