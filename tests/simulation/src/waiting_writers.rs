//! Checks in plans without faults that writers do not starve, and that no mark of a writer stays at a lock after the
//! writer has got the lock or has given up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::server::Server;
use super::world::World;

/// The callers that ask for an exclusive lock, of each key.
#[derive(Debug, Default)]
pub(super) struct WaitingWriters(Mutex<BTreeMap<String, Writers>>);

#[derive(Debug, Clone, Copy)]
struct Writers {
    waiting: usize,
    /// When the last of them has ended.
    ended: Instant,
    /// Since when some of them wait, and none of them has got the lock.
    unserved: Instant,
}

/// A caller that asks for an exclusive lock, until this is dropped.
#[must_use]
pub(super) struct WaitingWriter {
    world: Arc<World>,
    key: String,
}

/// The longest time until some writer gets the lock beside readers that never rest.
const UNSERVED: Duration = Duration::from_millis(500);
/// The longest time until a mark is withdrawn if nothing fails.
const WITHDRAWN: Duration = Duration::from_millis(100);

impl World {
    /// Records that a caller asks for an exclusive lock.
    pub(super) fn waiting_writer(self: &Arc<Self>, key: &str) -> WaitingWriter {
        let now = Instant::now();
        let none = || Writers { waiting: 0, ended: now, unserved: now };
        let mut writers = self.writers.0.lock();
        let writers = writers.entry(key.to_owned()).or_insert_with(none);
        if writers.waiting == 0 {
            writers.unserved = now;
        }
        writers.waiting += 1;
        WaitingWriter { world: Arc::clone(self), key: key.to_owned() }
    }

    /// Reports writers that starve, and marks of which no writer is left, in a plan without faults.
    pub(super) async fn watch_writers(&self, servers: &[Server]) {
        if self.plan.longest_wait.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(Duration::from_millis(10)).await;
            for (key, writers) in &*self.writers.0.lock() {
                // A writer that waits behind waiters for permits of its own process has left no mark yet.
                let has_permits = self.plan.sharing.is_some_and(|sharing| sharing.permits);
                let is_watched = !has_permits && writers.waiting > 0;
                if is_watched && writers.unserved.elapsed() > UNSERVED {
                    self.violation(format!("no writer gets {key}: {writers:?}"));
                }
            }
            for (number, server) in servers.iter().enumerate() {
                for key in server.marked_keys() {
                    let writers = self.writers.0.lock().get(&key).copied();
                    let is_left = |writers: &Writers| {
                        writers.waiting == 0 && writers.ended.elapsed() > WITHDRAWN
                    };
                    if writers.is_none_or(|writers| is_left(&writers)) {
                        self.violation(format!("a mark is left at {key} on server {number}"));
                    }
                }
            }
        }
    }
}

impl WaitingWriter {
    /// Records that the caller has got the lock.
    pub(super) fn served(&self) {
        if let Some(writers) = self.world.writers.0.lock().get_mut(&self.key) {
            writers.unserved = Instant::now();
        }
    }
}

impl Drop for WaitingWriter {
    fn drop(&mut self) {
        if let Some(writers) = self.world.writers.0.lock().get_mut(&self.key) {
            (writers.waiting, writers.ended) = (writers.waiting - 1, Instant::now());
        }
    }
}
