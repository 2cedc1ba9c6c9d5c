//! The counters of a manager since its start, and its last losses, for its snapshots.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::key::LockKey;
use crate::lock::{HolderId, LockName};

/// How many losses are kept.
const KEPT_LOSSES: usize = 100;

/// Defines the outcomes of an acquisition, each with its name in metrics and snapshots.
macro_rules! outcomes {
    ($($outcome:ident = $name:literal,)+) => {
        /// The outcome of an acquisition.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Outcome { $($outcome),+ }

        impl Outcome {
            /// The number of outcomes.
            pub(crate) const COUNT: usize = [$($name),+].len();
            /// The names, each at the index of its outcome.
            const NAMES: [&'static str; Self::COUNT] = [$($name),+];
        }
    };
}

outcomes! {
    Acquired = "acquired",
    Contended = "contended",
    Split = "split",
    Unavailable = "unavailable",
    TimedOut = "timed_out",
    TooManyWaiters = "too_many_waiters",
    AlreadyHeld = "already_held",
    Lost = "lost",
    ForeignKey = "foreign_key",
    Invalid = "invalid",
    Draining = "draining",
    ShutDown = "shut_down",
    RuntimeEnded = "runtime_ended",
    Dropped = "dropped",
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub(crate) struct Total(AtomicU64);

impl Total {
    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a manager.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    acquisitions: [Total; Outcome::COUNT],
    pub(crate) lost: Total,
    /// The last of the lost locks, in their order.
    losses: Mutex<VecDeque<RecordedLoss>>,
    pub(crate) extended: Total,
    pub(crate) not_extended: Total,
    pub(crate) broken: Total,
    releases_begun: Total,
    releases_ended: Total,
}

/// A lock that was lost.
#[derive(Debug, Clone)]
pub(crate) struct RecordedLoss {
    pub(crate) key: LockKey,
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    pub(crate) at: Moment,
    /// As in the log.
    pub(crate) reason: String,
}

/// A release that some nodes have not confirmed yet. Counted until it is dropped.
#[derive(Debug)]
pub(crate) struct PendingRelease(Arc<Counters>);

impl Counters {
    pub(crate) fn record_acquisition(&self, outcome: Outcome) {
        self.acquisitions[outcome as usize].increment();
    }

    /// Returns how many acquisitions had each outcome.
    pub(crate) fn acquisitions(&self) -> BTreeMap<&'static str, u64> {
        Outcome::NAMES.into_iter().zip(self.acquisitions.iter().map(Total::get)).collect()
    }

    pub(crate) fn record_loss(&self, loss: RecordedLoss) {
        self.lost.increment();
        let mut losses = self.losses.lock();
        if losses.len() == KEPT_LOSSES {
            losses.pop_front();
        }
        losses.push_back(loss);
    }

    /// Returns the last losses, the latest one first.
    pub(crate) fn losses(&self) -> Vec<RecordedLoss> {
        self.losses.lock().iter().rev().cloned().collect()
    }

    pub(crate) fn begin_release(self: &Arc<Self>) -> PendingRelease {
        self.releases_begun.increment();
        PendingRelease(Arc::clone(self))
    }

    /// Returns how many releases wait for the confirmation of nodes.
    pub(crate) fn pending_releases(&self) -> u64 {
        // In this order, so that a release that ends meanwhile is not subtracted without its begin.
        let ended = self.releases_ended.get();
        self.releases_begun.get().saturating_sub(ended)
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        self.0.releases_ended.increment();
    }
}
