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
    gone: AtomicBool,
    pub(super) life: Mutex<Life>,
}

pub(super) struct Life {
    pub(super) last_sign: Instant,
    /// The number of heartbeats so far.
    pub(super) signs: u64,
}

impl Member {
    pub(super) fn new(handle: Handle) -> Self {
        let life = Mutex::new(Life { last_sign: Instant::now(), signs: 0 });
        Self { id: handle.id(), handle, gone: AtomicBool::new(false), life }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Records that the runtime has ended.
    pub(super) fn end(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Starts the time within which the next heartbeat is due.
    pub(super) fn begin(&self) {
        self.life.lock().last_sign = Instant::now();
    }

    /// Emits a heartbeat.
    pub(super) fn beat(&self) {
        let mut life = self.life.lock();
        life.last_sign = Instant::now();
        life.signs += 1;
    }
}
