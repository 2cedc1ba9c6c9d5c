//! The guards of held locks, and the views of them.

mod fenced;
#[cfg(test)]
mod fenced_tests;
mod handle;
mod lock_guard;
mod lost;

pub use fenced::FencedGuard;
pub use handle::{LockHandle, LockState};
pub use lock_guard::LockGuard;
pub use lost::Lost;
