//! Waiting for a lock.
//!
//! Callers of one key queue in this process first, and only the first waiter talks to the nodes. If this
//! process holds the lock itself, the first waiter gets it by a hand-over, without a command to the nodes. If
//! another process holds it, the first waiter sleeps until a quorum of nodes has published the release, or
//! the holder's lease is over.
//!
//! Readers are an exception: when the nodes grant the lock to one of them, the others join it. A reader that may not join,
//! because its lease is longer or the window is over, asks the nodes for a lock of its own.
//!
//! * [`machine`] decides what one waiter does next, and why and how long it pauses.
//! * [`line`] has the holders and the waiters of one key: who is first, which readers go together, who gets a lock that is
//!   handed over.
//! * [`readers`] has the readers that join the lock of another one, and counts the holders of each lock.
//! * [`driver`] is the loop that asks, takes, sleeps and fails as the machine says.
//!
//! The first three have no clock and no task, and the model of `tests/model` compiles them.
//!
//! # Invariants
//!
//! **Order is not safety.** Fairness decides which caller asks first. The votes decide who holds the lock.
//!
//! Tests that fail without it, among others: `a_denied_lock_is_not_handed_over`,
//! `a_lock_that_the_nodes_deny_during_a_hand_over_has_no_new_holder`, `tests/simulation`, `tests/faults/storm.rs`.

mod driver;
mod fair;
mod fairness;
mod hand_over;
mod line;
mod machine;
mod pauses;
mod queues;
mod reader;
mod readers;
mod refusal;
mod release_signal;
mod roles;
mod sleep;
mod waiter;
mod waiting_keys;

// The model has an instant and modes of its own.
use tokio::time::Instant;

use crate::lease::JOIN_WINDOW;
use crate::lock::Mode;
use crate::node::TURN;

pub(crate) use driver::{Place, WaitingCaller};
pub(crate) use fair::{FairQueues, FairWait};
pub(crate) use hand_over::needs_extension;
pub(crate) use queues::Queues;
pub(crate) use reader::ReaderPlace;
pub(crate) use waiter::WaiterOptions;

#[cfg(test)]
#[cfg(feature = "test-util")]
mod drain_tests;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod endless_tests;
#[cfg(test)]
mod hand_over_tests;
#[cfg(test)]
mod line_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod mode_tests;
#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod pauses_tests;
#[cfg(test)]
mod several_keys_tests;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod waiter_tests;
