//! Held locks and their renewal.
//!
//! A guard, its views and the [`LeaseKeeper`] share one [`Holding`]. The keeper renews leases and detects leases that
//! have run out.
//!
//! # Invariants
//!
//! **Every lock has a deadline.** Every key of a lock has a TTL, and each holder of a shared lock a deadline of its
//! own. Validity counts from before the first byte was sent, on a clock that goes on while the machine sleeps. It is
//! compared with the clock at each use.
//!
//! Tests that fail without it, among others: `a_lease_counts_from_before_the_operation_is_sent`,
//! `lost_checks_the_clock_periodically`, `an_extension_that_is_confirmed_after_a_suspension_past_the_lease_is_lost`,
//! `a_slow_link_shortens_the_validity`, `readers_and_writers_exclude_each_other_on_one_node`, `tests/simulation`.
//!
//! **A failed extension is not a release.** Below a quorum the renewal is repeated while validity is left. Then the
//! lock is lost.
//!
//! Tests that fail without it, among others: `a_renewal_that_fails_is_repeated_while_validity_is_left`,
//! `a_renewal_survives_a_short_loss_of_the_quorum`.
//!
//! **Loss is never silent.** When a lock is lost, `lost()` resolves, `is_valid()` returns false, an event is logged
//! with the cause, and a counter grows.
//!
//! Tests that fail without it, among others: `a_loss_names_the_votes_of_the_last_renewal`,
//! `a_lock_that_cannot_be_renewed_in_time_is_lost`, `thousands_of_locks_that_are_lost_at_once_share_a_warning`,
//! `acquisitions_losses_and_extensions_are_counted`, `a_lost_lock_reports_its_loss`.

mod hints;
mod holding;
mod keeper;
mod listen;
mod siblings;

pub(crate) use holding::{HoldState, Holding};
pub(crate) use keeper::LeaseKeeper;
pub(crate) use siblings::JOIN_WINDOW;

#[cfg(test)]
mod denial_tests;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod hint_tests;
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
