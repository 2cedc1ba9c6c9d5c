//! Fair queues: an order of arrival between processes.
//!
//! The queue of a lock lies on one node, the *conductor*: the first node of the list that answers. Each waiter has a
//! ticket there. A process may ask the nodes for the lock only while the first ticket is its own, and the votes of the
//! nodes decide as always (order is not safety).
//!
//! * A waiter enters when it arrives, and leaves when it has the lock or gives up. The conductor notifies the process
//!   that has the first ticket then.
//! * A process is present on the conductor for 3 s, and its [attendant] refreshes that each second. A process that
//!   is killed or stopped loses all of its places at once.
//! * A ticket arrived as long ago as its caller has waited. So a process that enters again, after it was stopped or on
//!   another conductor, gets its places back.
//! * A process that has the first ticket and does not ask for the lock is not refreshed, see `STALL`.
//!
//! [`machine`] decides all of that, and [`attendant`] does it.

mod attendant;
mod fair_queues;
mod fair_wait;
mod machine;
mod queue;

use super::Instant;

pub(crate) use fair_queues::FairQueues;
pub(crate) use fair_wait::FairWait;
pub(crate) use queue::FairQueue;

#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod tests;
