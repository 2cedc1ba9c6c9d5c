//! Waiting for a lock.
//!
//! Callers of one key queue in this process first, and only the first waiter talks to the nodes. If this
//! process holds the lock itself, the first waiter gets it by a hand-over, without a command to the nodes. If
//! another process holds it, the first waiter sleeps until a quorum of nodes has published the release, or
//! the holder's lease is over.
//!
//! Readers that stand next to each other are an exception: when the nodes grant the lock to the first of them, the queue
//! calls the others, and each of them asks the nodes for a lock of its own.

mod backoff;
mod entry;
mod fair;
mod hand_over;
mod holders;
mod outage;
mod outage_wait;
mod queues;
mod release_signal;
mod wait_queue;
mod waiter;
mod waiters;

pub(crate) use backoff::{Backoff, poll_pause, wake_retry_delay};
pub(crate) use entry::WaiterOptions;
pub(crate) use fair::{FairKeeper, FairPlace, FairQueues};
pub(crate) use hand_over::needs_extension;
pub(crate) use outage::is_outage;
pub(crate) use outage_wait::OutageWait;
pub(crate) use queues::{LocalConflict, Queues};
pub(crate) use waiter::{WaitOutcome, Waiter};

#[cfg(test)]
mod hand_over_tests;
#[cfg(test)]
mod mode_tests;
#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod several_keys_tests;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;
