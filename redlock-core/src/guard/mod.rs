//! What holding a lock means.

mod fenced;
#[cfg(test)]
mod fenced_tests;
mod handle;
mod lock_guard;

pub use fenced::FencedGuard;
pub use handle::{Lease, LockState};
pub use lock_guard::LockGuard;
