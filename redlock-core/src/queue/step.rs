//! The next step of a waiter, its pauses, and the events that end them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::LockError;
use crate::lease::Held;

/// The next step of a waiter.
#[derive(Debug)]
pub(crate) enum Step {
    /// It asks the nodes.
    Ask,
    /// It takes the lock that another caller of this process has handed over.
    Take(Arc<Held>),
    /// It sleeps.
    Sleep(Pause),
}

/// Why a waiter sleeps.
pub(crate) enum Pause {
    /// It stands behind another waiter of this process.
    Queue,
    /// Its process does not have the first ticket of the fair queue.
    Fair,
    /// This process holds the lock. The holder may overrun its lease, so the waiter sleeps at most for this time.
    Holder(Arc<Held>, Duration),
    /// Another process holds the lock. A published release ends the sleep, and this time at the latest.
    Release(Duration),
    /// Several callers got votes.
    Split(Duration),
    /// Other processes have their turn, or the nodes name one key and then another.
    Yield(Duration),
    /// Its subscription to the releases is not in effect yet.
    Subscribe,
    /// No quorum of nodes answers. The waiter gives up with this error at this time.
    Outage(Box<LockError>, Instant),
}

/// The event that has ended a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// Another caller of this process: it has handed the lock over or called the waiter, has got, shared or released the lock,
    /// or has reached a quorum. Or the manager was shut down.
    Notified,
    Release,
    Timer,
    HolderEnded,
    Subscribed,
    QuorumIsBack,
    FairQueue,
    HomeIsIdle,
}

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "Queue",
            Self::Fair => "Fair",
            Self::Holder(..) => "Holder",
            Self::Release(_) => "Release",
            Self::Split(_) => "Split",
            Self::Yield(_) => "Yield",
            Self::Subscribe => "Subscribe",
            Self::Outage(..) => "Outage",
        })
    }
}
