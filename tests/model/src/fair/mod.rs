//! Fair queues, as a seventh model: callers of several processes that wait for one lock in the order of their arrival.
//!
//! As [`waiting`](crate::waiting), this model has no copy of the rules: it compiles the machine of a fair queue, and plays its
//! surroundings: the callers, the nodes with the tickets, the way of operations and replies, the clock, outages, nodes that
//! forget, dropped futures, callers that are not polled, and a shutdown.
//!
//! # Left out
//!
//! * The line of a process has its own model: here, its waiters ask in their order, and one after another.
//! * Time passes only when nothing is on its way, but for operations whose replies are lost.

mod claim;
mod node;
mod state;
mod step;
mod world;

#[path = "../../../../redlock-core/src/waiting/fair/machine/mod.rs"]
#[allow(dead_code, reason = "the library needs more of it than the model")]
mod machine;

pub(crate) use crate::waiting::Instant;
pub use claim::Claim;
pub use world::{Rule, World, holds, needs, walk};
