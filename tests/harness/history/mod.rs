//! Who asked for what, who believed to hold it, and when: the check of mutual exclusion that does
//! not ask the lock.
//!
//! Any number of processes append [`Event`]s to the file of one [`History`], on one clock. From these
//! [`Findings`] are made: holds that overlap, fencing tokens that do not grow, attempts that took
//! longer than they were allowed to.

mod clock;
mod event;
mod findings;
mod hold;
mod record;

pub use clock::monotonic_nanos;
pub use event::{Event, What};
pub use findings::{Findings, Late};
pub use hold::{Hold, holds, overlaps};
pub use record::{Attempt, Belief, History};
