//! The guards of held locks, and the views of them.

mod abort_on_loss;
mod change_mode;
#[cfg(test)]
mod change_mode_tests;
mod fenced;
#[cfg(test)]
mod fenced_tests;
mod handle;
mod lock_guard;
mod lost;
mod multi_guard;
mod release_or_log;

pub use abort_on_loss::{AbortOnLoss, LossWatcher};
pub use change_mode::DowngradeError;
pub use fenced::FencedGuard;
pub use handle::{LockHandle, LockState};
pub use lock_guard::LockGuard;
pub use lost::Lost;
pub use multi_guard::MultiGuard;
