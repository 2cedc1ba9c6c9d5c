//! A record of acquisitions and holds, and a checker of mutual exclusion that does not rely on the library.
//!
//! Any number of processes append [`Event`]s to the file of one [`History`], on one clock. [`Findings`] are
//! the result of the check: holds that overlap, fencing tokens that do not grow, attempts that took longer
//! than allowed.

mod clock;
mod event;
mod findings;
mod hold;
mod record;

pub use clock::monotonic_nanos;
pub use event::{Event, Sharing, What};
pub use findings::{Findings, Late};
pub use hold::{Hold, holds, overlapping_readers, overlaps, too_many};
pub use record::{Attempt, Belief, History};
