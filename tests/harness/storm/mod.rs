//! Many processes contend for a few locks while nodes and processes fail.
//!
//! A [`Schedule`] is what fails when: a pure function of its seed. A [`Storm`] carries it out on
//! servers of its own, under clients that write a [`History`](crate::History). The [`Report`] says
//! what came of it, [`Totals`] what came of many.

mod client;
mod clock;
mod fault;
mod keys;
mod minority;
mod network;
mod node;
mod planner;
mod report;
mod round;
mod schedule;
mod strike;
mod totals;

use std::time::Duration;

pub use client::Client;
pub use fault::{Fault, Target};
pub use report::Report;
pub use round::Storm;
pub use schedule::{Schedule, Strike};
pub use totals::Totals;

/// The longest lease that a client asks for.
pub const LONGEST_LEASE: Duration = Duration::from_millis(600);

/// How many locks are contended for: `hot:0` and so on.
pub const CONTENDED_KEYS: u32 = 9;

/// The user that the clients log in as, and its password.
const USER: &str = "contender";
const PASSWORD: &str = "word-of-the-contenders";

/// What the keys begin with that only one client acquires, and gives up.
const OWN_KEYS: &str = "own:";

/// How long a node that has forgotten its locks has to keep out of the votes: the longest lease, and
/// the margin for its clock.
const HOLD_BACK: Duration = Duration::from_millis(620);
