//! The entry of one waiter in its queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// The address of the holder for whose end the waiter waits, or zero.
    watched: AtomicUsize,
}

#[derive(Debug)]
pub(super) enum EntryState {
    /// The waiter waits until it is the first of its queue, or is called.
    Waiting,
    /// The waiter is a reader behind readers that hold the lock or ask for it, and asks the nodes, too.
    Called,
    /// The waiter asks the nodes for the first time since it was the first or was called.
    Asking,
    /// The nodes have refused the waiter, which is the first of its queue. It asks them again and again.
    Refused,
    /// The lock was handed over to the waiter, which has not taken it yet.
    HandedOver(Arc<Held>),
}

impl QueueEntry {
    pub(super) fn new(spec: LockSpec, options: WaiterOptions) -> Self {
        let (state, changed) = (Mutex::new(EntryState::Waiting), Notify::new());
        Self { spec, options, state, changed, watched: AtomicUsize::new(0) }
    }

    /// Records for the end of which holder the waiter waits.
    pub(super) fn watch(&self, held: &Arc<Held>) {
        self.watched.store(Arc::as_ptr(held).addr(), Ordering::Relaxed);
    }

    /// Returns whether the waiter waits for the end of this holder.
    pub(super) fn watches(&self, held: &Arc<Held>) -> bool {
        self.watched.load(Ordering::Relaxed) == Arc::as_ptr(held).addr()
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.state.lock(), EntryState::Waiting)
    }

    /// Returns whether the waiter asks the nodes, now and then.
    pub(super) fn is_asking(&self) -> bool {
        matches!(*self.state.lock(), EntryState::Asking | EntryState::Refused)
    }

    /// Returns whether the next reader may ask the nodes together with this one, which they have not refused yet.
    pub(super) fn leads_readers(&self) -> bool {
        self.is_unordered_reader()
            && matches!(*self.state.lock(), EntryState::Called | EntryState::Asking)
    }

    /// Lets a reader ask the nodes, although it is not the first. Returns false if that changes nothing.
    pub(super) fn call(&self) -> bool {
        let mut state = self.state.lock();
        let is_called = self.is_unordered_reader() && matches!(*state, EntryState::Waiting);
        if is_called {
            *state = EntryState::Called;
            self.changed.notify_one();
        }
        is_called
    }

    /// Returns whether the waiter is a reader that waits for its turn in this process only. Whether a fair reader is next
    /// of all processes is known only when the ticket before it has left.
    fn is_unordered_reader(&self) -> bool {
        self.spec.mode() == Mode::SHARED && self.options.fair.is_none()
    }

    /// Hands a lock over to the waiter, and wakes it.
    pub(super) fn assign(&self, held: Arc<Held>) {
        *self.state.lock() = EntryState::HandedOver(held);
        self.changed.notify_one();
    }
}
