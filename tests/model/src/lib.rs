//! Redlock as a model, small enough for a checker to look at every state that can be reached.
//!
//! A test tries what its author thought of. The checker ([`stateright`]) tries every order in which
//! messages arrive, clocks tick, nodes crash and clients give up, and shows the shortest way to break
//! a promise. To learn the algorithm, read in this order:
//!
//! 1. `node`: one Redis server, one vote;
//! 2. `network`: what is under way between a client and a node, in any order;
//! 3. `client`: what one process knows, and how long it believes in it;
//! 4. `step`: how they play together: ask, arrive, count, decide, leave;
//! 5. [`Rule`]: what makes that safe. Each rule can be broken;
//! 6. [`World`]: what may go wrong; [`Claim`]: what is promised all the same;
//! 7. `tests/exhaustive.rs`: which rule is needed against what.
//!
//! `time` counts in ticks, and asks the library's own functions what they mean: the files with the
//! validity and the quorum are compiled into both. `symmetry` and
//! [`State`]'s `settle` keep the number of states small, `random` walks where it is too large.
//!
//! # What an orphan is
//!
//! A key that is left by an attempt that was given up, after the clean-up of that attempt has been
//! executed on the same node. Until the clean-up arrives a key may be left, but never for longer
//! than its lease.
//!
//! # What is left out
//!
//! * A crashed client is one whose clean-ups are never delivered, a node that is down one whose
//!   messages are not.
//! * A no from a node: it only hastens what a client may do at any time, give up.
//! * A clean-up that is repeated: it finds nothing more than the first.
//! * The bytes, the connections, the tasks: those are what the tests against real servers are for.
//!
//! # What it does not show
//!
//! That fencing numbers follow the order in which locks are handed out. They do where one
//! acquisition begins after the other has ended; of two that overlap, the one that is handed out
//! later may have the smaller number if clocks are set in between. The resource then refuses it.

mod action;
mod check;
mod claim;
mod client;
mod model;
mod network;
mod node;
mod random;
mod rules;
mod state;
mod step;
mod symmetry;
mod time;
mod world;

#[path = "../../../redlock-core/src/quorum.rs"]
mod quorum;
#[path = "../../../redlock-core/src/validity.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the library needs more of it than the model"
)]
mod validity;

pub use action::Action;
pub use check::{Check, Search};
pub use claim::Claim;
pub use model::Redlock;
pub use network::{Attempt, Message, Request};
pub use rules::{Rule, Rules};
pub use state::State;
pub use world::{Clocks, Restarts, World};
