//! A lock that ends with a session, as a second model: two clients, a follower and the leader of a ZooKeeper ensemble.
//!
//! Each client has a session. Its lock is an ephemeral child in a queue: the first child holds the lock, and the leader removes
//! the children of a session that it ends. The leader ends a session if it has not heard of it for the session timeout, T. Read
//! in this order:
//!
//! 1. `ensemble`: the leader, the follower, and the messages between them, which arrive in the order of sending;
//! 2. `evidence`: the evidence of a client that its session is alive;
//! 3. `client`: the state of one process;
//! 4. `step`: the algorithm: ask, create, list, decide, leave;
//! 5. [`Rule`]: the rules that make the lock safe. Each rule can be broken;
//! 6. [`World`] and [`Claim`];
//! 7. `tests/exhaustive/session.rs`: the counterexample of each broken rule.
//!
//! # Three worlds
//!
//! One world with everything has too many states. [`World::Beats`] shows that the evidence of a client is true.
//! [`World::Locks`] shows that true evidence makes the lock exclusive: there, the evidence of a client is the best that can be
//! true. [`World::Numbers`] shows that fencing numbers grow.
//!
//! # Time
//!
//! All clocks run alike, and the model has no margins: the other model shows why they are needed. A test compares the model's
//! rule of evidence with `evidence.rs` of redlock-core.
//!
//! # Pauses
//!
//! Every message takes any time. So a paused client sends nothing, a paused follower takes nothing, and a paused
//! leader executes nothing. One assumption remains: a leader that executes a message has first sent the ping that was due.
//!
//! # Left out
//!
//! * A connection that breaks, other than by a reconnect: it is the same as messages that never arrive.
//! * An extension: it is the same as an acquisition by a client whose child exists.
//! * The first list, which finds out that the lock is not free: it only makes a client give up, which the client may do anyway.
//! * A client at the leader itself: the leader hears of its session with each request, and not only with some.
//! * The evidence that ends with a handshake that shortens the session: then only the holders are at risk, whom no evidence
//!   reaches.
//! * A change of the leader: the new one starts all sessions with T.

mod action;
mod claim;
mod client;
mod ensemble;
mod evidence;
mod model;
mod rules;
mod step;

#[cfg(test)]
#[expect(dead_code, reason = "the library needs more of it than the model")]
#[path = "../../../../redlock-core/src/store/zookeeper/evidence.rs"]
mod library;

pub use action::Action;
pub use claim::Claim;
pub use model::{Check, Sessions, World};
pub use rules::{Rule, Rules};
pub use step::State;
