//! The record of one waiter in the queue of a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::fair::Tickets;
use crate::caller_id::CallerId;
use crate::lease::Holding;
use crate::lock::{LockSpec, Mode};

/// The requirements of one waiter.
#[derive(Debug, Clone)]
pub(crate) struct WaiterOptions {
    /// The lease that the waiter requests.
    pub(crate) expire: Duration,
    /// Whether the waiter may take a lock that another caller acquired.
    pub(crate) accepts_hand_over: bool,
    /// Whether the waiter needs a fencing token.
    pub(crate) fenced: bool,
    /// Whether the waiter waits without a limit, also while no quorum of nodes answers.
    pub(crate) is_endless: bool,
    pub(crate) caller: CallerId,
    /// When the caller began to wait. A lock of several keys may have waited in other queues before.
    pub(crate) since: Instant,
    /// The fair queue in which the caller waits, if any.
    pub(crate) fair: Option<Arc<Tickets>>,
}

/// The record of one waiter. A caller that changes the state of a waiter in a queue holds the lock of the queues.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The lock that the waiter requests. Its other keys have other queues.
    pub(super) spec: LockSpec,
    pub(super) options: WaiterOptions,
    state: Mutex<WaiterState>,
    /// Whether the waiter asks the nodes alone, although readers stand behind it: they have refused it, or a holder of this
    /// process was in its way.
    asks_alone: AtomicBool,
    /// The address of the holder for whose end the waiter waits, or zero.
    watched: AtomicUsize,
    /// Notified at each change that concerns the waiter.
    pub(super) changed: Notify,
}

/// The state of a waiter. `ARCHITECTURE.md` has the table of the transitions.
#[derive(Debug, Clone)]
pub(super) enum WaiterState {
    /// The waiter stands behind another one.
    Queued,
    /// The waiter may ask the nodes, unless something is in its way. The first waiter of a queue never stays `Queued`.
    /// Readers behind it are called together.
    Called,
    /// The waiter asks the nodes.
    Asking,
    /// The nodes have refused the first waiter, or no quorum has answered it. It pauses.
    Refused,
    /// The lock was handed over to the waiter, which has left the queue and has not taken the lock yet.
    HandedOver(Arc<Holding>),
}

impl Waiter {
    pub(super) fn new(spec: LockSpec, options: WaiterOptions) -> Self {
        Self {
            spec,
            options,
            state: Mutex::new(WaiterState::Called),
            asks_alone: AtomicBool::new(false),
            watched: AtomicUsize::new(0),
            changed: Notify::new(),
        }
    }

    pub(super) fn state(&self) -> WaiterState {
        self.state.lock().clone()
    }

    /// Sets the state, and returns the former one.
    pub(super) fn set(&self, state: WaiterState) -> WaiterState {
        match state {
            WaiterState::Refused => self.asks_alone.store(true, Ordering::Relaxed),
            WaiterState::Queued => self.asks_alone.store(false, Ordering::Relaxed),
            WaiterState::Called | WaiterState::Asking | WaiterState::HandedOver(_) => {}
        }
        std::mem::replace(&mut *self.state.lock(), state)
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(*self.state.lock(), WaiterState::Queued)
    }

    /// Returns whether the nodes have the waiter's question, or have refused it.
    pub(super) fn is_asking(&self) -> bool {
        matches!(*self.state.lock(), WaiterState::Asking | WaiterState::Refused)
    }

    /// Returns whether the waiter may take a lock that is handed over: it does not ask the nodes at the moment.
    pub(super) fn may_take(&self) -> bool {
        matches!(*self.state.lock(), WaiterState::Called | WaiterState::Refused)
    }

    /// Returns whether the next reader may ask the nodes together with this one.
    pub(super) fn leads_readers(&self) -> bool {
        self.is_reader()
            && !self.asks_alone.load(Ordering::Relaxed)
            && matches!(*self.state.lock(), WaiterState::Called | WaiterState::Asking)
    }

    /// Lets a waiter that stands behind another one ask the nodes. Returns false if that changes nothing.
    pub(super) fn call(&self) -> bool {
        let is_queued = self.is_queued();
        if is_queued {
            self.set(WaiterState::Called);
            self.changed.notify_one();
        }
        is_queued
    }

    /// Returns whether the waiter is a reader that waits for its turn in this process only. Whether a fair reader is next
    /// of all processes is known only when the ticket before it has left.
    pub(super) fn is_reader(&self) -> bool {
        self.spec.mode() == Mode::SHARED && self.options.fair.is_none()
    }

    /// Hands a lock over to the waiter, and wakes it.
    pub(super) fn assign(&self, held: Arc<Holding>) {
        self.set(WaiterState::HandedOver(held));
        self.changed.notify_one();
    }

    /// Records for the end of which holder the waiter waits.
    pub(super) fn watch(&self, held: &Arc<Holding>) {
        self.asks_alone.store(true, Ordering::Relaxed);
        self.watched.store(Arc::as_ptr(held).addr(), Ordering::Relaxed);
    }

    /// Returns whether the waiter waits for the end of this holder.
    pub(super) fn watches(&self, held: &Arc<Holding>) -> bool {
        self.watched.load(Ordering::Relaxed) == Arc::as_ptr(held).addr()
    }
}
