//! The entry of one waiter in its queue.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::fair::FairQueue;
use crate::lease::Held;
use crate::lock::{LockSpec, Mode};

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
    /// When the caller began to wait. A lock of several keys may have waited in other queues before.
    pub(crate) since: Instant,
    /// The fair queue in which the caller waits, if any.
    pub(crate) fair: Option<Arc<FairQueue>>,
}

/// The entry of one waiter in its queue.
#[derive(Debug)]
pub(super) struct QueueEntry {
    /// The lock that the waiter requests. Its other keys have other queues.
    pub(super) spec: LockSpec,
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
    pub(super) fn new(spec: LockSpec, options: WaiterOptions) -> Self {
        Self { spec, options, state: Mutex::new(EntryState::Waiting), changed: Notify::new() }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.state.lock(), EntryState::Waiting)
    }

    pub(super) fn is_asking(&self) -> bool {
        matches!(*self.state.lock(), EntryState::Asking)
    }

    /// Returns whether the waiter is a reader that waits for its turn in this process only.
    pub(super) fn is_unordered_reader(&self) -> bool {
        self.spec.mode() == Mode::SHARED && self.options.fair.is_none() && self.is_waiting()
    }

    /// Hands a lock over to the waiter, and wakes it.
    pub(super) fn assign(&self, held: Arc<Held>) {
        *self.state.lock() = EntryState::HandedOver(held);
        self.changed.notify_one();
    }
}
