//! The guards of held locks, and the views of them.

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
