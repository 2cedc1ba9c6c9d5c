//! Held locks, their renewal, and their release in the background.
//!
//! A guard, its views and the [`LeaseKeeper`] share one [`Held`]. The keeper renews leases and detects leases that
//! have run out. [`CleanupTasks`] completes the releases that no caller waits for.

mod cleanup;
mod held;
mod keeper;

pub(crate) use cleanup::CleanupTasks;
pub(crate) use held::{Held, HoldState};
pub(crate) use keeper::{LeaseKeeper, Renewal};

#[cfg(test)]
mod denial_tests;
#[cfg(test)]
mod min_hold_tests;
#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod shutdown_tests;
#[cfg(test)]
mod tests;
