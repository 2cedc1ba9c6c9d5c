//! What happens while a lock is held, and afterwards.
//!
//! A [`Held`] is what a guard, its views and the [`Keeper`] share. The keeper renews what is to be
//! renewed and notices what runs out; [`CleanupTasks`] brings releases to an end that nobody waits
//! for.

mod cleanup;
mod held;
mod keeper;

pub(crate) use cleanup::CleanupTasks;
pub(crate) use held::{Held, State};
pub(crate) use keeper::{Keeper, Renewal};

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
