//! One runtime that uses a manager.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};

/// A runtime that uses the manager.
pub(super) struct Member {
    pub(super) id: Id,
    pub(super) handle: Handle,
    /// Whether the runtime has ended.
    ended: AtomicBool,
    pub(super) heartbeats: Mutex<Heartbeats>,
}

pub(super) struct Heartbeats {
    pub(super) last: Instant,
    /// The number of heartbeats so far.
    pub(super) count: u64,
}

impl Member {
    pub(super) fn new(handle: Handle) -> Self {
        let heartbeats = Mutex::new(Heartbeats { last: Instant::now(), count: 0 });
        Self { id: handle.id(), handle, ended: AtomicBool::new(false), heartbeats }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Records that the runtime has ended.
    pub(super) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Starts the time within which the next heartbeat is due.
    pub(super) fn expect_heartbeats(&self) {
        self.heartbeats.lock().last = Instant::now();
    }

    /// Emits a heartbeat.
    pub(super) fn beat(&self) {
        let mut heartbeats = self.heartbeats.lock();
        heartbeats.last = Instant::now();
        heartbeats.count += 1;
    }
}
