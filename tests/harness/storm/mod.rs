//! Storms: many processes contend for a few locks while nodes, clients and network links fail.
//!
//! A [`Schedule`] lists the faults and their times. It is a pure function of its seed. A [`Storm`] makes the
//! faults on servers of its own, while client processes write a [`History`](crate::History). A [`Report`] is
//! the result.

mod client;
mod clock;
mod fault;
mod keys;
mod minority;
mod mixed;
mod network;
mod node;
mod planner;
mod report;
mod round;
mod schedule;
mod strike;

use std::time::Duration;

pub use client::{Client, ClientSettings};
pub use fault::{Fault, Target};
pub use report::Report;
pub use round::Storm;
pub use schedule::{NodeKind, Schedule, Strike};

/// The longest lease that a client requests.
pub const LONGEST_LEASE: Duration = Duration::from_millis(600);

/// The number of contended keys: `hot:0`, `hot:1` and so on.
pub const CONTENDED_KEYS: u32 = 9;

/// The user of the clients, and its password.
const USER: &str = "contender";
const PASSWORD: &str = "word-of-the-contenders";

/// The prefix of the keys that only one client acquires.
const OWN_KEYS: &str = "own:";

/// How long a node that has lost its locks must not vote: the longest lease plus a margin for its clock.
const HOLD_BACK: Duration = Duration::from_millis(620);
