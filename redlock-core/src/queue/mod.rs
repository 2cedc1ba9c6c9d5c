//! What happens while a lock is waited for.
//!
//! Callers of one key queue in this process first, and only the first of them talks to the nodes.
//! Where this process holds the lock itself, the first gets it handed over without a word to the
//! nodes; where another does, it sleeps until a quorum of nodes has announced the release, or the
//! other's lease is over.

mod backoff;
mod entry;
mod hand_over;
mod outage;
mod patience;
mod queues;
mod release_signal;
mod wait_queue;
mod waiter;

pub(crate) use backoff::{Backoff, poll_pause, wake_retry_delay};
pub(crate) use entry::WaiterOptions;
pub(crate) use hand_over::needs_extension;
pub(crate) use outage::is_outage;
pub(crate) use patience::Patience;
pub(crate) use queues::Queues;
pub(crate) use waiter::{WaitOutcome, Waiter};

#[cfg(test)]
mod hand_over_tests;
#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;
