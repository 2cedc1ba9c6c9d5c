//! The waiters, the holders and the subscriptions of a key, as its line sees them.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::{Instant, Mode};

/// A waiter, as its line sees it.
pub(super) trait LineWaiter: Clone + fmt::Debug {
    fn is(&self, other: &Self) -> bool;

    /// Returns when the caller began to wait. A lock of several keys may have waited in other lines before.
    fn since(&self) -> Instant;

    fn mode(&self) -> Mode;

    /// Returns whether the waiter is a reader that waits for its turn in this process only. Whether a fair reader is next
    /// of all processes is known only when the ticket before it has left.
    fn is_reader(&self) -> bool;

    /// Returns the lease that the waiter asks for, if it may join the lock of another reader of this process.
    fn joins(&self) -> Option<Duration>;
}

/// A holder, as its line sees it: an id with a deadline.
pub(super) trait LineHolder: Clone + fmt::Debug {
    fn id(&self) -> usize;

    /// Returns the id of the lock on the nodes, which several readers of this process may have.
    fn entry(&self) -> usize;

    fn mode(&self) -> Mode;

    /// Returns whether a reader that asks for this lease may join the lock now, as far as the line is not in its way.
    fn may_be_joined(&self, lease: Duration, now: Instant) -> bool;

    /// Returns how long the holder may still rely on its lock.
    fn remaining(&self, now: Instant) -> Duration;

    /// Returns the index that was [set](Self::set_index) last.
    fn index(&self) -> usize;

    fn set_index(&self, index: usize);
}

/// A subscription to the published releases of a key.
pub(super) trait LineSignal: Clone + fmt::Debug {
    /// The releases that were published at a moment.
    type Counts: Clone + fmt::Debug + Eq + Hash;

    fn is(&self, other: &Self) -> bool;

    fn is_in_effect(&self) -> bool;

    /// Returns whether the signal notifies callers that wait for a lock of this mode.
    fn serves(&self, mode: Mode) -> bool;

    fn counts(&self) -> Self::Counts;
}
