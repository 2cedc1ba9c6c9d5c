//! Held locks and their renewal.
//!
//! A guard, its views and the [`LeaseKeeper`] share one [`Held`]. The keeper renews leases and detects leases that
//! have run out.

mod held;
mod keeper;

pub(crate) use held::{Held, HoldState};
pub(crate) use keeper::LeaseKeeper;

#[cfg(test)]
mod denial_tests;
#[cfg(test)]
mod loss_tests;
#[cfg(test)]
mod min_hold_tests;
#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod shutdown_tests;
#[cfg(test)]
pub(crate) mod tests;
