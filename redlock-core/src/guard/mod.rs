//! The guards of held locks, and the views of them.
//!
//! # Invariants
//!
//! **Dropping is always safe.** The drop of a guard, a request or a future does not block, and does not panic outside
//! of a runtime. It releases in the background. `shutdown()` waits for these releases.
//!
//! Tests that fail without it, among others: `a_guard_may_be_dropped_outside_of_a_runtime`,
//! `a_dropped_release_continues_in_the_background`, `a_dropped_guard_releases`.

mod abort_on_loss;
#[cfg(test)]
mod downgrade_tests;
#[cfg(test)]
mod fenced_tests;
mod handle;
mod lock_guard;

pub use abort_on_loss::{AbortOnLoss, LossWatcher};
pub use handle::{LockHandle, LockState, Lost};
pub use lock_guard::LockGuard;
