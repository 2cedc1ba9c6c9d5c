//! The events of a history, one line each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One event of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The time of the event, on the clock of [`monotonic_nanos`](super::monotonic_nanos).
    pub at: u64,
    /// The id of the process.
    pub process: u32,
    /// The number of the process's attempt that the event belongs to; zero for none.
    pub number: u64,
    /// The kind of event.
    pub what: What,
}

/// With whom a holder shares its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// With nobody.
    Exclusive,
    /// With any number of readers.
    Readers,
    /// With other holders of permits, so that there are at most this many in all.
    Permits(u32),
}

impl Sharing {
    /// Returns the name of the mode.
    pub(super) fn mode(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Readers => "shared",
            Self::Permits(_) => "permits",
        }
    }

    /// Returns whether two holders may have the lock at the same time.
    pub fn allows(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Readers, Self::Readers) | (Self::Permits(_), Self::Permits(_))
        )
    }
}

/// The kind of an event, with its fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The caller requested a lock.
    Asked {
        /// The longest time for the attempt: the wait time, and the nodes' timeout for the last reply.
        within: Duration,
        /// The key of the lock.
        key: String,
    },
    /// The library granted the lock to the caller.
    Granted {
        /// The time until which the holder may rely on the lock; [`u64::MAX`] for a holder that relies on it
        /// until it releases it.
        believed_until: u64,
        /// The number of the fencing token; `None` without fencing.
        fencing: Option<i64>,
        /// With whom the holder shares the lock.
        sharing: Sharing,
        /// The key of the lock.
        key: String,
    },
    /// The holder turned an exclusive lock into a shared one, or back.
    Changed {
        /// With whom the holder shares the lock from now on.
        sharing: Sharing,
    },
    /// The holder checked its guard again, and the time until which it may rely on the lock has changed: a
    /// renewal moves it later, a loss earlier.
    Believed {
        /// The new time.
        until: u64,
    },
    /// The holder began to release the lock, and no longer relies on it.
    Released,
    /// The acquisition failed.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The caller dropped its request.
    Abandoned,
    /// The tasks of the process did not run: the process was stopped, or had to wait for a processor.
    HeldUp {
        /// The beginning of the pause; the event's time is its end.
        since: u64,
    },
    /// A fault is over.
    Fault {
        /// The beginning of the fault; the event's time is its end.
        since: u64,
        /// The name of the fault.
        name: String,
    },
}
