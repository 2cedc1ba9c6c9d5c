//! Waiting, as a sixth model: the callers of one process that wait for one key.
//!
//! This model has no copy of the rules. It compiles the machine of a waiter, the line of a key, the fairness between processes
//! and the pauses, as the library has them, and plays their surroundings: the other callers, the nodes, another process, the
//! clock, outages, dropped futures and a shutdown. Between two steps of one caller, every other thing may happen.
//!
//! A [`Rule`] is something that the surroundings owe to the machine and the line. Each one can be broken, and the checker finds
//! the steps that break a [`Claim`] then.
//!
//! Readers of the worlds in which they [join](World::joins) share one lock of the nodes. The line counts them, and the nodes know
//! only the lock: so the checker finds a guard that outlives it.
//!
//! # Left out
//!
//! * Several keys, and fair callers: a caller in this model stands in one line, and never behind another process.
//! * Random pauses: each one has its shortest time.
//! * A drain: [`drain`](crate::drain) has it.

mod claim;
mod state;
mod step;
mod table;
mod world;

#[path = "../../../../redlock-core/src/waiting/fairness.rs"]
#[allow(dead_code, reason = "the library needs more of it than the model")]
mod fairness;
#[path = "../../../../redlock-core/src/waiting/line.rs"]
#[allow(dead_code, reason = "the library needs more of it than the model")]
mod line;
#[path = "../../../../redlock-core/src/waiting/machine/mod.rs"]
#[allow(dead_code, reason = "the library needs more of it than the model")]
mod machine;
#[path = "../../../../redlock-core/src/waiting/pauses.rs"]
#[allow(dead_code, reason = "the library needs more of it than the model")]
mod pauses;
#[path = "../../../../redlock-core/src/waiting/readers.rs"]
#[allow(dead_code, reason = "the library needs more of it than the model")]
mod readers;
#[path = "../../../../redlock-core/src/waiting/roles.rs"]
#[allow(dead_code, reason = "the library needs more of it than the model")]
mod roles;

use std::ops::{Add, Sub};
use std::time::Duration;

pub use claim::Claim;
pub use table::table;
pub use world::{Rule, World, holds, needs, walk};

/// The turn of the readers, as in the library.
const TURN: Duration = Duration::from_millis(50);
/// How long after the begin of its acquisition a lock of readers may be joined, as in the library.
const JOIN_WINDOW: Duration = Duration::from_millis(20);

/// A time since the beginning.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Instant(Duration);

impl Instant {
    fn checked_add(self, time: Duration) -> Option<Self> {
        self.0.checked_add(time).map(Self)
    }

    /// Returns the time that is so much earlier.
    pub(crate) fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The mode of a lock, without permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

impl Mode {
    const SHARED: Self = Self::Shared;

    fn is_shared(self) -> bool {
        self == Self::Shared
    }

    fn compatible(self, other: Self) -> bool {
        self.is_shared() && other.is_shared()
    }
}
