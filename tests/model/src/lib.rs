//! Redlock as a model, small enough for a checker to look at every state that can be reached.
//!
//! A test tries the cases that its author thought of. The checker ([`stateright`]) tries every order in
//! which messages arrive, clocks tick, nodes crash and clients give up, and prints the shortest sequence of
//! steps that breaks a claim. To learn the algorithm, read in this order:
//!
//! 1. `node`: one Redis server, one vote;
//!    `site`: the same node, with the clients that share the lock on it;
//! 2. `network`: the messages between a client and a node, which arrive in any order;
//! 3. `client`: the state of one process, and how long its lock is valid;
//! 4. `step`: the algorithm: ask, arrive, count, decide, leave;
//! 5. [`Rule`]: the rules that make the algorithm safe. Each rule can be broken;
//! 6. [`World`]: the faults that may happen; [`Claim`]: the claims that hold in spite of them;
//! 7. `tests/exhaustive`: the rule that each kind of fault makes necessary.
//!
//! [`session`] is a second model: a lock that ends with a session, as in ZooKeeper. [`split`] is a third one: callers that
//! ask at the same moment, so that none of them has a quorum. [`lead`] has leaders, [`drain`] the drain of a
//! manager, and [`pooler`] a failover that a pooler hides. [`waiting`] runs the library's own rules of
//! waiting, and [`fair`] those of fair queues.
//!
//! `time` counts in ticks. Validity and quorum are the library's own functions: the model compiles
//! `validity.rs`, `quorum.rs` and `standing.rs` of redlock-core. `symmetry` and the `settle` of [`State`] keep the number
//! of states small.
//!
//! # Orphans
//!
//! An orphan is a key of an abandoned attempt on a node that has already executed the clean-up of that
//! attempt. Before the clean-up arrives, a key may be left behind, but never for longer than its lease.
//!
//! # Left out
//!
//! * A crash of a client: it is the same as a client whose clean-ups never arrive.
//! * A node that is down: it is the same as a node whose messages never arrive.
//! * A no from a node: it only makes a client give up, which the client may do at any time.
//! * The marks of waiting writers, the turn of readers, and readers beside holders of permits: they only make a node say
//!   no. A key with nothing but marks is as free as no key.
//! * A reader that asks again: a node only prolongs its entry.
//! * A repeated downgrade: it is the same as a delayed one. A repeated clean-up finds nothing more to delete.
//! * A release with `min_hold`, which shortens the lease: it is the same as a delayed clean-up.
//! * Bytes, connections and tasks: the tests against real servers cover them.
//!
//! # Not claimed
//!
//! The model does not show that fencing numbers follow the order in which locks are handed out. They do if
//! one acquisition begins after the other has ended. If two acquisitions overlap and a clock is set in
//! between, the lock that is handed out later may have the smaller number. The resource then refuses it.

mod action;
mod check;
mod claim;
mod client;
#[cfg(test)]
mod clock;
pub mod drain;
#[cfg(test)]
mod error;
pub mod fair;
pub mod lead;
mod model;
mod network;
mod node;
pub mod pooler;
mod rules;
pub mod session;
mod site;
pub mod split;
mod state;
mod step;
mod symmetry;
mod time;
pub mod waiting;
mod world;

#[path = "../../../redlock-core/src/quorum.rs"]
mod quorum;
#[path = "../../../redlock-core/src/ballot/standing.rs"]
mod standing;
#[path = "../../../redlock-core/src/validity.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the library needs more of it than the model"
)]
mod validity;

pub use action::Action;
pub use check::{Check, checks_large_worlds};
pub use claim::Claim;
pub use model::Redlock;
pub use network::{Attempt, Message, Request};
pub use rules::{Rule, Rules};
pub use state::State;
pub use world::{Clocks, Restarts, Sharing, World};
